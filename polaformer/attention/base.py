"""The contract every attention keeps: tokens of any grid in, tokens of the same grid out."""

from __future__ import annotations

from abc import ABC, abstractmethod

from torch import Tensor, nn

from polaformer.errors import UserError
from polaformer.ops import Regions

Size = tuple[int, int]


def missing(size: int, side: int) -> int:
    """How much ``size`` lacks to a whole multiple of ``side``.

    Written without the remainder operator, which torch.compile (2.14) cannot express for an image
    size that it traces as a symbol.
    """
    return (size + side - 1) // side * side - size


class Attention(nn.Module, ABC):
    """Attention over the tokens of a 2-D grid.

    Args:
        dim: Width C of the tokens.
        num_heads: Number of heads; must divide ``dim``.
        grid_size: Grid (H, W) of the *keys* at which position tables are learned.
        qkv_bias: Whether the input projections have a bias.
        proj_drop: Dropout after the output projection.

    Raises:
        UserError: If ``num_heads`` does not divide ``dim``.
    """

    linear: bool = False  # cost linear in the number of tokens

    def __init__(
        self,
        dim: int,
        num_heads: int,
        grid_size: Size,
        qkv_bias: bool = True,
        proj_drop: float = 0.0,
    ) -> None:
        super().__init__()
        if num_heads < 1 or dim % num_heads:
            raise UserError(
                f"{type(self).__name__}: num_heads={num_heads} does not divide dim={dim}; "
                f"allowed: divisors of {dim}"
            )
        self.dim = dim
        self.num_heads = num_heads
        self.head_dim = dim // num_heads
        self.grid_size = (int(grid_size[0]), int(grid_size[1]))
        self.proj = nn.Linear(dim, dim)
        self.proj_drop = nn.Dropout(proj_drop)

    @abstractmethod
    def forward(
        self,
        x: Tensor,
        hw: Size,
        context: Tensor | None = None,
        context_hw: Size | None = None,
        regions: Regions | None = None,
    ) -> Tensor:
        """Mix the tokens x [B, H*W, C] of the grid ``hw`` = (H, W); returns [B, H*W, C].

        Keys and values come from ``context`` [B, h*w, C] of grid ``context_hw`` if given, else from
        x. ``regions`` (windows only) says which tokens of a window may meet.
        """

    def split_heads(self, t: Tensor) -> Tensor:
        """[B, N, C] -> [B, heads, N, C / heads]; channel = head * head_dim + j."""
        return t.unflatten(-1, (self.num_heads, self.head_dim)).transpose(1, 2)

    @staticmethod
    def merge_heads(t: Tensor) -> Tensor:
        """[B, heads, N, D] -> [B, N, heads * D]."""
        return t.transpose(1, 2).flatten(2)
