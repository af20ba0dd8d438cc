"""Position tables on a 2-D grid, resized by (H, W) when the input has another size.

A table is learned at its native grid and stays untouched there. Any other grid gets a resized copy;
the token count alone never decides, since 4 x 9 and 6 x 6 are different grids.
"""

from __future__ import annotations

from collections import OrderedDict

import torch
import torch.nn.functional as F
from torch import Tensor

Size = tuple[int, int]


def resize_grid_table(table: Tensor, native: Size, size: Size, mode: str) -> Tensor:
    """Resize a row-major table [1, H*W, C] from grid ``native`` to grid ``size``.

    Interpolation as the published code moves a checkpoint: corners not aligned, no antialiasing.
    """
    grid = table.transpose(1, 2).unflatten(2, native)
    return F.interpolate(grid, size=size, mode=mode, align_corners=False).flatten(2).transpose(1, 2)


class GridTable:
    """Gives a learned table [1, H*W, C] at any grid size, remembering the last few on a CPU.

    While gradients flow the table is resized afresh each time. Otherwise a CPU keeps the results:
    one is used again only if the table still holds the values it was made from, however they came
    to be written. On an accelerator resizing costs less than that comparison, so nothing is kept.
    """

    kept_sizes = 8

    def __init__(self, native: Size, mode: str = "bicubic") -> None:
        self.native = native
        self.mode = mode
        self._kept: OrderedDict[Size, tuple[Tensor, Tensor]] = OrderedDict()

    def __call__(self, table: Tensor, size: Size) -> Tensor:
        """The table for the grid ``size``: itself at the native size, else a resized copy."""
        if size == self.native:
            return table
        needs_grad = torch.is_grad_enabled() and table.requires_grad
        if needs_grad or torch.compiler.is_compiling() or table.device.type != "cpu":
            return resize_grid_table(table, self.native, size, self.mode)
        if size in self._kept:
            source, resized = self._kept[size]
            if source.dtype == table.dtype and torch.equal(source, table):
                self._kept.move_to_end(size)
                return resized
        resized = resize_grid_table(table, self.native, size, self.mode).detach()
        self._kept[size] = (table.detach().clone(), resized)
        if len(self._kept) > self.kept_sizes:
            self._kept.popitem(last=False)
        return resized

    def __getstate__(self) -> dict:
        return {"native": self.native, "mode": self.mode, "_kept": OrderedDict()}


def relative_position_index(size: Size, native: Size, device: torch.device | None = None) -> Tensor:
    """Rows of the bias table [N, N] for every query/key pair of a window ``size`` = (h, w).

    The table covers offsets of a ``native`` window (at least as large) row by row, as in Swin
    (arXiv 2103.14030): row offset times (2 * native width - 1) plus column offset.
    """
    rows = torch.arange(size[0], device=device)
    columns = torch.arange(size[1], device=device)
    row_offset = rows[:, None] - rows[None, :] + native[0] - 1
    column_offset = columns[:, None] - columns[None, :] + native[1] - 1
    index = row_offset[:, None, :, None] * (2 * native[1] - 1) + column_offset[None, :, None, :]
    n = size[0] * size[1]
    return index.reshape(n, n)


def relative_position_bias(table: Tensor, native: Size, size: Size) -> Tensor:
    """Bias [heads, N, N] of a window ``size``, from the table [(2h-1)(2w-1), heads] of ``native``.

    A smaller window reads the matching part of the table; a larger one a table resized in 2-D.
    """
    if size[0] > native[0] or size[1] > native[1]:
        larger = (max(size[0], native[0]), max(size[1], native[1]))
        spans = [(2 * h - 1, 2 * w - 1) for h, w in (native, larger)]
        table = resize_grid_table(table[None], spans[0], spans[1], "bicubic")[0]
        native = larger
    index = relative_position_index(size, native, table.device)
    return table[index].permute(2, 0, 1)
