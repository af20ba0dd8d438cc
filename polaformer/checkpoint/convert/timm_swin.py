"""Weights of timm's Swin transformer, for our PolaSwin with softmax attention.

timm keeps the merging at the start of the stage it leads to, in the same order of the four
neighbours as ours, and calls the classifier head.fc.
"""

from __future__ import annotations

from collections.abc import Mapping, Set

import torch

from polaformer.checkpoint.convert import pola_swin
from polaformer.checkpoint.convert.base import Converter, State, split_ours, split_owner

NAME = "timm-swin"


def is_official(names: Set[str]) -> bool:
    return (
        pola_swin.has_swin_blocks(names)
        and "layers.1.downsample.reduction.weight" in names
        and "layers.0.downsample.reduction.weight" not in names
    )


def is_ours(names: Set[str]) -> bool:
    return pola_swin.is_ours(names) and not any(".attn.qgkv." in name for name in names)


def to_ours(state: Mapping[str, torch.Tensor]) -> State:
    """timm's names to ours."""
    official, rest = split_owner(state, is_official, NAME)
    return pola_swin.rename_to_ours(official, rest, merge_offset=-1)


def to_official(state: Mapping[str, torch.Tensor]) -> State:
    """Our names to timm's, for a model whose blocks are all softmax."""
    ours, head = split_ours(state, is_ours, NAME)
    official = pola_swin.rename_to_official(ours, merge_offset=1)
    return {**official, **{f"head.fc.{key}": value for key, value in head.items()}}


CONVERTER = Converter(NAME, is_official, is_ours, to_ours, to_official)
