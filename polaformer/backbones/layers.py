"""Parts that the backbone families share: patches, blocks, paddings."""

from __future__ import annotations

import torch.nn.functional as F
from timm.layers import DropPath, Mlp
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from polaformer.attention.base import missing

Size = tuple[int, int]


def pad_to_multiple(images: Tensor, side: int) -> Tensor:
    """Pad images [B, C, H, W] with zeros at the right and bottom until ``side`` divides both."""
    bottom, right = missing(images.shape[-2], side), missing(images.shape[-1], side)
    return F.pad(images, (0, right, 0, bottom)) if bottom or right else images


def to_map(tokens: Tensor, hw: Size) -> Tensor:
    """Tokens [B, H*W, C] as a feature map [B, C, H, W]."""
    return tokens.transpose(1, 2).unflatten(2, hw).contiguous()


def ceil_div(size: Size, divisor: int) -> Size:
    """Both sides divided by ``divisor``, rounded up."""
    return (size[0] + divisor - 1) // divisor, (size[1] + divisor - 1) // divisor


class PatchEmbed(nn.Module):
    """Non-overlapping patches as tokens: a strided convolution, then LayerNorm.

    A side that ``patch_size`` does not divide is padded with zeros, so the grid is the rounded-up
    quotient.
    """

    def __init__(self, in_channels: int, embed_dim: int, patch_size: int) -> None:
        super().__init__()
        self.patch_size = patch_size
        self.proj = nn.Conv2d(in_channels, embed_dim, patch_size, stride=patch_size)
        self.norm = nn.LayerNorm(embed_dim, eps=1e-5)

    def forward(self, images: Tensor) -> tuple[Tensor, Size]:
        """Images [B, C, H, W] to tokens [B, N, E] and their grid (h, w)."""
        grid = self.proj(pad_to_multiple(images, self.patch_size))
        return self.norm(grid.flatten(2).transpose(1, 2)), (grid.shape[-2], grid.shape[-1])


class Block(nn.Module):
    """Pre-norm transformer block: x += attention(norm(x)), then x += MLP(norm(x)).

    Args:
        attn: Any attention, wrapped or not, called as ``attn(x, hw)``.
        dim: Width of the tokens.
        mlp_ratio: Hidden width of the MLP as a multiple of ``dim``.
        drop: Dropout inside the MLP.
        drop_path: Probability of skipping a branch per sample (stochastic depth).
        norm_eps: Epsilon of both LayerNorms.
        with_cp: Recompute the block in the backward pass instead of keeping its activations.
    """

    def __init__(
        self,
        attn: nn.Module,
        dim: int,
        mlp_ratio: float,
        drop: float = 0.0,
        drop_path: float = 0.0,
        norm_eps: float = 1e-5,
        with_cp: bool = False,
    ) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(dim, eps=norm_eps)
        self.attn = attn
        self.norm2 = nn.LayerNorm(dim, eps=norm_eps)
        self.mlp = Mlp(dim, int(dim * mlp_ratio), drop=drop)
        self.drop_path = DropPath(drop_path) if drop_path > 0 else nn.Identity()
        self.with_cp = with_cp

    def forward(self, x: Tensor, hw: Size) -> Tensor:
        """Tokens x [B, H*W, C] of the grid ``hw`` in, the same shape out."""
        if self.with_cp and self.training:
            return checkpoint(self._mix, x, hw, use_reentrant=False)
        return self._mix(x, hw)

    def _mix(self, x: Tensor, hw: Size) -> Tensor:
        x = x + self.drop_path(self.attn(self.norm1(x), hw))
        return x + self.drop_path(self.mlp(self.norm2(x)))


class PatchMerging(nn.Module):
    """Halves the grid: the four tokens of a 2 x 2 neighbourhood become one of twice the width.

    Order of the neighbours (row, column): (0,0), (1,0), (0,1), (1,1). An odd side is padded with
    zeros. Source: Swin Transformer, arXiv 2103.14030.
    """

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(4 * dim, eps=1e-5)
        self.reduction = nn.Linear(4 * dim, 2 * dim, bias=False)

    def forward(self, x: Tensor, hw: Size) -> tuple[Tensor, Size]:
        """Tokens [B, H*W, C] to tokens [B, ceil(H/2) * ceil(W/2), 2 C] and their grid."""
        height, width = ceil_div(hw, 2)
        grid = x.unflatten(1, hw)
        bottom, right = 2 * height - hw[0], 2 * width - hw[1]
        if bottom or right:
            grid = F.pad(grid, (0, 0, 0, right, 0, bottom))
        grid = grid.reshape(-1, height, 2, width, 2, x.shape[-1])
        merged = grid.permute(0, 1, 3, 4, 2, 5).flatten(3).flatten(1, 2)
        return self.reduction(self.norm(merged)), (height, width)
