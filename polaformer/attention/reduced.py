"""Key/value reduction around any attention (PVT's spatial reduction, arXiv 2102.12122)."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn

from polaformer.attention.base import Attention, Size, missing


def reduced_size(hw: Size, ratio: int) -> Size:
    """The key grid of a token grid: each side divided by ``ratio``, rounded up."""
    return (hw[0] + ratio - 1) // ratio, (hw[1] + ratio - 1) // ratio


class ReducedAttention(nn.Module):
    """Gives ``attn`` keys and values from a grid that a strided convolution made ``ratio`` smaller.

    A side that ``ratio`` does not divide is continued with its last row or column, so every token
    is seen by the convolution and nothing but image content is.
    """

    def __init__(self, attn: Attention, ratio: int) -> None:
        super().__init__()
        self.attn = attn
        self.ratio = ratio
        self.sr = nn.Conv2d(attn.dim, attn.dim, ratio, stride=ratio)
        self.norm = nn.LayerNorm(attn.dim, eps=1e-5)

    def forward(self, x: Tensor, hw: Size) -> Tensor:
        """Mix the tokens x [B, H*W, C] of the grid ``hw``; returns [B, H*W, C]."""
        grid = x.transpose(1, 2).unflatten(2, hw)
        padding = (missing(hw[0], self.ratio), missing(hw[1], self.ratio))
        if any(padding):
            grid = F.pad(grid, (0, padding[1], 0, padding[0]), mode="replicate")
        context = self.norm(self.sr(grid).flatten(2).transpose(1, 2))
        return self.attn(x, hw, context, reduced_size(hw, self.ratio))
