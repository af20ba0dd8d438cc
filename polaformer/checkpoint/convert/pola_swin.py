"""Weights of the published Pola-Swin (and of Swin in its original names).

Published names: layers.i.blocks.j, the merging at the end of a stage, one final norm, head. The
fused projection of a linear block has its rows in the order q, k, v, g; ours are q, g, k, v.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Set
from math import isqrt

import torch

from polaformer.checkpoint.convert.base import (
    Converter,
    State,
    attention_leaves,
    reorder,
    split_ours,
    split_owner,
    with_head,
)

NAME = "pola-swin"
TABLE = "relative_position_bias_table"
BUFFERS = ("relative_position_index", "attn_mask")
_LINEAR = {"qkvg", "proj", "dwc", "power", "scale", "positional_encoding"}
_SOFTMAX = {"qkv", "proj", TABLE, "relative_position_index"}
_TO_OURS = (0, 3, 1, 2)  # q, k, v, g -> q, g, k, v
_TO_OFFICIAL = (0, 2, 3, 1)  # and back


def has_swin_blocks(names: Set[str]) -> bool:
    """Whether all blocks are those of Swin or Pola-Swin, and there are some."""
    leaves = attention_leaves(names, r"layers\.\d+\.blocks\.\d+")
    return bool(leaves) and all(
        (parts <= _LINEAR and "qkvg" in parts) or (parts <= _SOFTMAX and {"qkv", TABLE} <= parts)
        for parts in leaves.values()
    )


def is_official(names: Set[str]) -> bool:
    return has_swin_blocks(names) and "layers.0.downsample.reduction.weight" in names


def is_ours(names: Set[str]) -> bool:
    return {"stages.0.blocks.0.norm1.weight", "stages.0.downsample.reduction.weight"} <= names


def to_ours(state: Mapping[str, torch.Tensor]) -> State:
    """Published names to ours; buffers that are recomputed (index, mask) are dropped."""
    official, rest = split_owner(state, is_official, NAME)
    return rename_to_ours(official, rest, merge_offset=0)


def rename_to_ours(official: State, rest: State, merge_offset: int) -> State:
    """Swin's names to ours; ``merge_offset`` is added to the stage that a merging is stored in."""
    stages = 1 + max(int(key.split(".")[1]) for key in official if key.startswith("layers."))
    backbone: State = {}
    head: State = {}
    rest = dict(rest)
    for key, value in official.items():
        first, _, tail = key.partition(".")
        if key.endswith(BUFFERS):
            continue
        if first == "head":
            head[key.rpartition(".")[2]] = value
        elif first == "norm":
            backbone[f"norms.{stages - 1}.{tail}"] = value
        elif first == "patch_embed":
            backbone[key] = value
        elif found := re.fullmatch(r"layers\.(\d+)\.downsample\.(.+)", key):
            backbone[f"stages.{int(found[1]) + merge_offset}.downsample.{found[2]}"] = value
        elif found := re.fullmatch(r"layers\.(\d+\.blocks\.\d+)\.(.+)", key):
            linear = f"layers.{found[1]}.attn.qkvg.weight" in official
            name, tensor = _block_to_ours(found[2], value, linear)
            backbone[f"stages.{found[1]}.{name}"] = tensor
        else:
            rest[key] = value
    return with_head(backbone, head, rest)


def _block_to_ours(name: str, value: torch.Tensor, linear: bool) -> tuple[str, torch.Tensor]:
    if name.startswith("attn.qkvg."):
        return name.replace("qkvg", "qgkv"), reorder(value, _TO_OURS)
    if name.startswith("attn.") and not linear:
        return f"attn.{name}", value
    return name, value


def to_official(state: Mapping[str, torch.Tensor]) -> State:
    """Our names to the published ones, with the index and mask buffers of softmax blocks.

    A mask needs the grid, known if a linear block sees the whole of a square one, as in all
    released models; without it masks are left out. Norms of stages before the last have no
    published place and are dropped.
    """
    grid = _first_grid(state)
    ours, head = split_ours(state, is_ours, NAME)
    official = rename_to_official(ours, merge_offset=0)
    for key in [key for key in official if key.endswith(TABLE)]:
        window = (isqrt(official[key].shape[0]) + 1) // 2
        prefix = key.removesuffix(f"attn.{TABLE}")
        official[f"{prefix}attn.relative_position_index"] = position_index(window)
        stage, block = (int(part) for part in prefix.split(".")[1:4:2])
        side = 0 if grid is None else grid >> stage
        if block % 2 == 1 and side > window:
            official[f"{prefix}attn_mask"] = shift_mask(side, window).to(official[key].dtype)
    return {**official, **{f"head.{key}": value for key, value in head.items()}}


def rename_to_official(ours: State, merge_offset: int) -> State:
    """Our names to Swin's; ``merge_offset`` is added to the stage that a merging is stored in."""
    last = max(int(key.split(".")[1]) for key in ours if key.startswith("stages."))
    official: State = {}
    for key, value in ours.items():
        if key.startswith("norms."):
            if key.startswith(f"norms.{last}."):
                official[key.replace(f"norms.{last}", "norm")] = value
        elif found := re.fullmatch(r"stages\.(\d+)\.downsample\.(.+)", key):
            official[f"layers.{int(found[1]) + merge_offset}.downsample.{found[2]}"] = value
        elif ".attn.qgkv." in key:
            name = key.replace("stages.", "layers.", 1).replace("qgkv", "qkvg")
            official[name] = reorder(value, _TO_OFFICIAL)
        else:
            official[key.replace("stages.", "layers.", 1)] = value
    return official


def _first_grid(state: Mapping[str, torch.Tensor]) -> int | None:
    """The side of the first stage's grid, from a table of a block that sees all of its stage's."""
    for key, value in state.items():
        found = re.search(r"stages\.(\d+)\.blocks\.\d+\.attn\.positional_encoding$", key)
        if found:
            side = isqrt(value.shape[1])
            return side << int(found[1]) if side * side == value.shape[1] else None
    return None


def position_index(window: int) -> torch.Tensor:
    """The row of the bias table for every pair of tokens of a square window, (w*w, w*w)."""
    row = torch.arange(window).repeat_interleave(window)
    column = torch.arange(window).repeat(window)
    rows = row[:, None] - row[None, :] + window - 1
    columns = column[:, None] - column[None, :] + window - 1
    return rows * (2 * window - 1) + columns


def shift_mask(grid: int, window: int) -> torch.Tensor:
    """0 within and -100 between the regions that a cyclic shift by window // 2 brings together.

    Shape (windows, w*w, w*w).
    """
    line = torch.zeros(grid, dtype=torch.int64)
    line[grid - window : grid - window // 2] = 1
    line[grid - window // 2 :] = 2
    region = 3 * line[:, None] + line[None, :]
    count = grid // window
    tiles = region.reshape(count, window, count, window).transpose(1, 2).reshape(-1, window**2)
    apart = tiles[:, None, :] != tiles[:, :, None]
    return apart.float() * -100.0


CONVERTER = Converter(NAME, is_official, is_ours, to_ours, to_official)
