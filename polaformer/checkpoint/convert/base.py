"""What a weight format can do, and the parts that the formats share."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Set
from dataclasses import dataclass

import torch

from polaformer.checkpoint.errors import CheckpointError
from polaformer.checkpoint.state import canonical, leading_owners

State = dict[str, torch.Tensor]
BACKBONE = "backbone."


@dataclass(frozen=True)
class Converter:
    """A published format: whether names belong to it, and the way to our names and back.

    ``to_ours`` gives a classifier's names ('backbone.…', 'head.fc.…') where the state has a head,
    and a bare backbone's otherwise; tensors that have no place in ours stay under their own names.
    ``to_official`` takes either. Both accept any prefix in front of the names.
    """

    name: str
    is_official: Callable[[Set[str]], bool]
    is_ours: Callable[[Set[str]], bool]
    to_ours: Callable[[Mapping[str, torch.Tensor]], State]
    to_official: Callable[[Mapping[str, torch.Tensor]], State]


def split_owner(
    state: Mapping[str, torch.Tensor], belongs: Callable[[Set[str]], bool], name: str
) -> tuple[State, State]:
    """The tensors of the format without their common prefix, and those outside of it.

    Raises `CheckpointError` if no prefix makes the names belong to the format.
    """
    names = {canonical(key): value for key, value in state.items()}
    for prefix in leading_owners(names):
        inside = {k.removeprefix(prefix): v for k, v in names.items() if k.startswith(prefix)}
        if belongs(inside.keys()):
            return inside, {k: v for k, v in names.items() if not k.startswith(prefix)}
    example = next(iter(state), "no tensor")
    raise CheckpointError(f"the weights are not in the format {name}; one name is '{example}'")


def split_ours(
    state: Mapping[str, torch.Tensor], belongs: Callable[[Set[str]], bool], name: str
) -> tuple[State, State]:
    """Our backbone's tensors without prefix, and the classifier's head (weight, bias) if any."""
    inside, outside = split_owner(state, belongs, name)
    head = {}
    for part in (outside, inside):
        for key in [key for key in part if re.search(r"(^|\.)head\.fc\.(weight|bias)$", key)]:
            head[key.rpartition(".")[2]] = part.pop(key)
    return inside, head


def with_head(backbone: State, head: Mapping[str, torch.Tensor], rest: State) -> State:
    """A classifier's names if there is a head, else the bare backbone's."""
    if not head:
        return {**backbone, **rest}
    named = {f"{BACKBONE}{key}": value for key, value in backbone.items()}
    return {**named, **{f"head.fc.{key}": value for key, value in head.items()}, **rest}


def attention_leaves(names: Iterable[str], block: str) -> dict[str, set[str]]:
    """The parts of the attention of each block: prefix of the block to names below 'attn.'.

    ``block`` is a pattern whose match is the block's prefix.
    """
    pattern = re.compile(rf"({block})\.attn\.([^.]+)")
    leaves: dict[str, set[str]] = {}
    for name in names:
        if found := pattern.match(name):
            leaves.setdefault(found[1], set()).add(found[2])
    return leaves


def reorder(rows: torch.Tensor, order: tuple[int, ...]) -> torch.Tensor:
    """Rows in as many equal groups as ``order`` has entries, put into that order."""
    groups = rows.chunk(len(order))
    return torch.cat([groups[i] for i in order])
