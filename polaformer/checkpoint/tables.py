"""Resize position tables by their height and width.

Bicubic, corners not aligned, no antialiasing, as the published code moves a checkpoint to another
resolution. A table is an image of (H, W) positions; its token count alone does not say which.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from math import isqrt

import torch
from torch import nn
from torch.nn import functional as F

from polaformer.checkpoint.errors import CheckpointError
from polaformer.checkpoint.state import bare

TOKEN_TABLES = ("positional_encoding", "pos_embed", "absolute_pos_embed")
BIAS_TABLE = "relative_position_bias_table"
Grid = tuple[int, int]


def resize_tokens(table: torch.Tensor, source: Grid, target: Grid) -> torch.Tensor:
    """A (1, h*w, C) table of the grid ``source`` as a (1, H*W, C) table of the grid ``target``."""
    return _resize(table[0], source, target)[None]


def resize_bias(table: torch.Tensor, source: Grid, target: Grid) -> torch.Tensor:
    """A ((2h-1)(2w-1), heads) table of the window ``source`` for the window ``target``."""
    old_side = (2 * source[0] - 1, 2 * source[1] - 1)
    new_side = (2 * target[0] - 1, 2 * target[1] - 1)
    return _resize(table, old_side, new_side)


def _resize(rows: torch.Tensor, source: Grid, target: Grid) -> torch.Tensor:
    if source == target:
        return rows.clone()
    precise = rows if rows.dtype == torch.float64 else rows.float()
    image = precise.reshape(*source, -1).permute(2, 0, 1)[None]
    resized = F.interpolate(image, size=target, mode="bicubic", align_corners=False)
    return resized[0].permute(1, 2, 0).reshape(target[0] * target[1], -1).to(rows.dtype)


def is_table(key: str) -> bool:
    """Whether a tensor of this name is a table over positions."""
    name = key.rpartition(".")[2]
    return name == BIAS_TABLE or name in TOKEN_TABLES


def positions(key: str, shape: Sequence[int]) -> int:
    """The number of positions of a table of this name and shape."""
    return shape[0] if key.endswith(BIAS_TABLE) else shape[1]


def count(key: str, grid: Grid) -> int:
    """The number of positions that a grid (or window) gives a table of this name."""
    height, width = grid
    return (2 * height - 1) * (2 * width - 1) if key.endswith(BIAS_TABLE) else height * width


def square(key: str, shape: Sequence[int]) -> Grid | None:
    """The square grid (or window) with as many positions as the table, if there is one."""
    number = positions(key, shape)
    side = isqrt(number)
    if side * side != number or (key.endswith(BIAS_TABLE) and side % 2 == 0):
        return None
    side = (side + 1) // 2 if key.endswith(BIAS_TABLE) else side
    return (side, side)


def told_grid(module: nn.Module, key: str, shape: Sequence[int]) -> Grid | None:
    """The grid that the owner of a table, or the nearest module around it, declares for it.

    Read from ``grid_size`` (tokens) or ``window_size`` (relative bias) if it fits the length.
    """
    attribute = "window_size" if key.endswith(BIAS_TABLE) else "grid_size"
    path = key.rpartition(".")[0]
    while True:
        value = getattr(module.get_submodule(path), attribute, None)
        if isinstance(value, int):
            value = (value, value)
        if isinstance(value, Sequence) and len(value) == 2:
            grid = (int(value[0]), int(value[1]))
            if count(key, grid) == positions(key, shape):
                return grid
        if not path:
            return None
        path = path.rpartition(".")[0]


def table_grids(module: nn.Module) -> dict[str, list[int]]:
    """The grid of every position table of a model, to be stored beside its weights.

    `load_weights` reads them from ``meta['table_grids']`` of a checkpoint, so that a table of a
    non-square grid is understood later.
    """
    grids = {}
    for key, value in module.state_dict().items():
        if isinstance(value, torch.Tensor) and is_table(key):
            grid = told_grid(module, key, value.shape) or square(key, value.shape)
            if grid is not None:
                grids[key] = list(grid)
    return grids


def stated_grid(grids: Mapping[str, Sequence[int]], *names: str) -> Grid | None:
    """The entry of ``grids`` for one of ``names``: the same name but for owners, or a pattern."""
    by_name = {bare(key): grid for key, grid in grids.items()}
    for name in names:
        if grid := by_name.get(bare(name)):
            return (int(grid[0]), int(grid[1]))
    for pattern, grid in grids.items():
        if any(fnmatchcase(name, pattern) for name in names):
            return (int(grid[0]), int(grid[1]))
    return None


def fit_table(
    value: torch.Tensor,
    key: str,
    target_shape: Sequence[int],
    target: Grid | None,
    source: Grid | None,
) -> torch.Tensor:
    """A table of the file in the length the model needs; the same object if nothing is to be done.

    ``target`` is what the model declares, ``source`` what is known about the file; without it the
    file's grid is the square one. Raises `CheckpointError` where the grid cannot be known.
    """
    same_length = positions(key, value.shape) == positions(key, target_shape)
    if source is not None and count(key, source) != positions(key, value.shape):
        raise CheckpointError(
            f"{key}: the stated grid {source} does not give the {positions(key, value.shape)} "
            "positions of the table in the file"
        )
    guess = square(key, value.shape)
    goal = target or square(key, target_shape)
    if same_length and source is None:
        if target is None or guess is None or guess == target:
            return value
        raise CheckpointError(
            f"{key}: the file's table of {positions(key, value.shape)} positions may be {guess} or "
            f"{target}; say which with source_grids={{'{key}': {guess}}} or ...{target}"
        )
    source = source or guess
    if source is None:
        raise CheckpointError(
            f"{key}: the file's table of {positions(key, value.shape)} positions is not square; "
            f"state its height and width with source_grids={{'{key}': (H, W)}}"
        )
    if goal is None:
        raise CheckpointError(
            f"{key}: the model does not say the (H, W) of its {target_shape} table"
        )
    if source == goal:
        return value
    resize = resize_bias if key.endswith(BIAS_TABLE) else resize_tokens
    return resize(value, source, goal)
