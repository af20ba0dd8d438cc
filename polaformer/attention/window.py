"""(Shifted) windows around any attention, on grids of any size.

A grid that the window does not divide is padded; padding never carries weight. In a shifted block
the grid is rolled, so a window at the border holds tokens from opposite edges: those are different
regions and never meet. Source: Swin Transformer, arXiv 2103.14030.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from polaformer.attention.base import Attention, Size, missing
from polaformer.ops import Regions


def window_regions(
    grid: Size, window: Size, shift: Size, device: torch.device | None = None
) -> Regions:
    """Region ids [windows, tokens of a window] of a grid padded to whole windows, then rolled.

    0 ... 3 by whether the row and the column were rolled round the edge, -1 for padding.
    """
    ids = []
    for size, side, step in zip(grid, window, shift, strict=True):
        padded = size + missing(size, side)
        position = torch.arange(padded, device=device)
        source = (position + step) % padded
        rolled = (position >= padded - step).long()
        ids.append(torch.where(source < size, rolled, -1))
    rows, columns = ids[0][:, None], ids[1][None, :]
    merged = torch.where((rows < 0) | (columns < 0), -1, 2 * rows + columns)
    table = _partition(merged[None, :, :, None], window)[..., 0]
    return Regions(table, 4 if shift[0] else 2 if shift[1] else 1)


def _partition(grid: Tensor, window: Size) -> Tensor:
    """[B, H, W, C] -> [B * windows, tokens of a window, C]."""
    batch, height, width, channels = grid.shape
    rows, columns = height // window[0], width // window[1]
    grid = grid.reshape(batch, rows, window[0], columns, window[1], channels)
    return grid.transpose(2, 3).reshape(-1, window[0] * window[1], channels)


def _merge(windows: Tensor, window: Size, grid: Size) -> Tensor:
    """[B * windows, tokens of a window, C] -> [B, H, W, C]."""
    rows, columns = grid[0] // window[0], grid[1] // window[1]
    t = windows.reshape(-1, rows, columns, window[0], window[1], windows.shape[-1])
    return t.transpose(2, 3).reshape(-1, grid[0], grid[1], windows.shape[-1])


class WindowAttention(nn.Module):
    """Runs ``attn`` inside windows of at most ``window_size`` tokens a side.

    An axis of the grid that is not longer than the window forms one window of its own length and
    is not shifted. Otherwise a shifted block is rolled by half a window along that axis.
    """

    def __init__(self, attn: Attention, window_size: Size, shifted: bool = False) -> None:
        super().__init__()
        self.attn = attn
        self.window_size = window_size
        self.shifted = shifted

    def forward(self, x: Tensor, hw: Size) -> Tensor:
        """Mix the tokens x [B, H*W, C] of the grid ``hw`` within windows; returns [B, H*W, C]."""
        height, width = hw
        window = (min(self.window_size[0], height), min(self.window_size[1], width))
        if window == hw:
            return self.attn(x, hw)
        shift = (
            window[0] // 2 if self.shifted and height > window[0] else 0,
            window[1] // 2 if self.shifted and width > window[1] else 0,
        )
        padding = (missing(height, window[0]), missing(width, window[1]))
        grid = x.unflatten(1, hw)
        if any(padding):
            grid = F.pad(grid, (0, 0, 0, padding[1], 0, padding[0]))
        if any(shift):
            grid = grid.roll((-shift[0], -shift[1]), dims=(1, 2))
        regions = None
        if any(padding) or any(shift):
            regions = window_regions(hw, window, shift, x.device)
        windows = self.attn(_partition(grid, window), window, regions=regions)
        grid = _merge(windows, window, (height + padding[0], width + padding[1]))
        if any(shift):
            grid = grid.roll(shift, dims=(1, 2))
        return grid[:, :height, :width].flatten(1, 2)
