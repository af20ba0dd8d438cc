"""Weights of the published Pola-PVT.

Published names count stages from 1 in the attribute (patch_embed1, pos_embed1, block1.0). A linear
block has the projections qg and kv, a softmax block q and kv; ours are one projection each, with
the rows q, g, k, v and q, k, v. The published final norm is never used.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Set

import torch

from polaformer.checkpoint.convert.base import (
    Converter,
    State,
    attention_leaves,
    split_ours,
    split_owner,
    with_head,
)

NAME = "pola-pvt"
_REDUCTION = {"sr", "norm"}
_LINEAR = {"qg", "kv", "proj", "dwc", "power", "scale", "positional_encoding"} | _REDUCTION
_SOFTMAX = {"q", "kv", "proj"} | _REDUCTION


def is_official(names: Set[str]) -> bool:
    leaves = attention_leaves(names, r"block\d+\.\d+")
    return (
        bool(leaves)
        and "patch_embed1.proj.weight" in names
        and "cls_token" not in names
        and not any(".mlp.dwconv." in name for name in names)
        and all(
            {"qg", "kv"} <= parts <= _LINEAR or {"q", "kv"} <= parts <= _SOFTMAX
            for parts in leaves.values()
        )
    )


def is_ours(names: Set[str]) -> bool:
    return {"stages.0.blocks.0.norm1.weight", "stages.0.patch_embed.proj.weight"} <= names


def to_ours(state: Mapping[str, torch.Tensor]) -> State:
    """Published names to ours; the unused final norm is dropped."""
    official, rest = split_owner(state, is_official, NAME)
    backbone: State = {}
    head: State = {}
    for key, value in official.items():
        if key.startswith("head."):
            head[key.removeprefix("head.")] = value
        elif key.startswith("norm."):
            continue
        elif found := re.fullmatch(r"(patch_embed|pos_embed)(\d+)((?:\..+)?)", key):
            backbone[f"stages.{int(found[2]) - 1}.{found[1]}{found[3]}"] = value
        elif found := re.fullmatch(r"block(\d+)\.(\d+)\.(.+)", key):
            prefix = f"block{found[1]}.{found[2]}"
            block = f"stages.{int(found[1]) - 1}.blocks.{found[2]}"
            for name, tensor in _block_to_ours(official, prefix, found[3]).items():
                backbone[f"{block}.{name}"] = tensor
        else:
            rest[key] = value
    return with_head(backbone, head, rest)


def _block_to_ours(official: State, prefix: str, name: str) -> State:
    """One tensor of a block under our name; the projections join at the query's."""
    value = official[f"{prefix}.{name}"]
    parts = name.split(".")
    if parts[0] != "attn" or parts[1] in _REDUCTION:
        return {name: value}
    inner = "attn.attn" if f"{prefix}.attn.sr.weight" in official else "attn"
    if parts[1] == "kv":
        return {}
    if parts[1] in ("q", "qg"):
        joined = "qgkv" if parts[1] == "qg" else "qkv"
        key_value = official[f"{prefix}.attn.kv.{parts[2]}"]
        return {f"{inner}.{joined}.{parts[2]}": torch.cat([value, key_value])}
    return {f"{inner}.{'.'.join(parts[1:])}": value}


def to_official(state: Mapping[str, torch.Tensor]) -> State:
    """Our names to the published ones, with the unused final norm as ones and zeros."""
    ours, head = split_ours(state, is_ours, NAME)
    official: State = {}
    last = max(int(key.split(".")[1]) for key in ours if key.startswith("stages."))
    for key, value in ours.items():
        found = re.fullmatch(r"stages\.(\d+)\.(.+)", key)
        if not found:
            continue
        stage, name = int(found[1]) + 1, found[2]
        if block := re.fullmatch(r"blocks\.(\d+)\.(.+)", name):
            for part, tensor in _block_to_official(block[2], value).items():
                official[f"block{stage}.{block[1]}.{part}"] = tensor
        else:
            first, dot, tail = name.partition(".")
            official[f"{first}{stage}{dot}{tail}"] = value
    width = ours[f"stages.{last}.patch_embed.norm.weight"]
    official["norm.weight"], official["norm.bias"] = torch.ones_like(width), torch.zeros_like(width)
    return {**official, **{f"head.{key}": value for key, value in head.items()}}


def _block_to_official(name: str, value: torch.Tensor) -> State:
    parts = name.split(".")
    if parts[0] != "attn" or parts[1] not in ("qgkv", "qkv"):
        return {name: value}
    linear = parts[1] == "qgkv"
    groups = 4 if linear else 3
    cut = value.shape[0] // groups * (2 if linear else 1)
    query = "qg" if linear else "q"
    return {f"attn.{query}.{parts[2]}": value[:cut], f"attn.kv.{parts[2]}": value[cut:]}


CONVERTER = Converter(NAME, is_official, is_ours, to_ours, to_official)
