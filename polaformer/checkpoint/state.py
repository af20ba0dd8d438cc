"""Find the weights in a checkpoint, and say which of them belongs to which tensor of a model."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

import torch

from polaformer.checkpoint.errors import CheckpointError

_PLAIN = ("model", "state_dict", "module", "net", "network", "weights")
_AVERAGED = ("state_dict_ema", "model_ema", "ema_state_dict", "ema")
# Wrappers that add a segment to every name below them, wherever they stand.
_WRAPPERS = frozenset(
    ("module", "_orig_mod", "_fsdp_wrapped_module", "_checkpoint_wrapped_module", "_forward_module")
)
# Attributes under which a larger model keeps a smaller one; stripped or added where that matches.
_OWNERS = frozenset(
    [
        "model",
        "backbone",
        "encoder",
        "net",
        "network",
        "trunk",
        "body",
        "visual",
        "image_encoder",
        "img_backbone",
        "vision_model",
    ]
)
_DEPTH = 4


def find_state(
    checkpoint: Mapping[str, Any], prefer_ema: bool = False
) -> tuple[dict[str, torch.Tensor], str]:
    """The tensors of a checkpoint by name, and the container they lie in ('' for a bare state).

    Containers may be nested ('model.state_dict'). With ``prefer_ema`` the averaged weights are
    taken where the file has them, otherwise only where it has no others. Raises `CheckpointError`
    if there are no weights.
    """
    found = _find(checkpoint, prefer_ema, 0)
    if found is None:
        keys = ", ".join(repr(key) for key in list(checkpoint)[:8])
        raise CheckpointError(
            f"no weights found; the file holds {keys or 'nothing'}, expected a state dict or one "
            f"of {', '.join(_PLAIN[:2] + _AVERAGED[:3])}"
        )
    return found


def ema_container(checkpoint: Mapping[str, Any]) -> str | None:
    """The container of averaged weights in a checkpoint, if it has one."""
    for name in _AVERAGED:
        inner = checkpoint.get(name)
        if isinstance(inner, Mapping) and _find(inner, False, 1) is not None:
            return "state_dict" if _is_swapped(checkpoint, name) else name
    return None


def _is_swapped(checkpoint: Mapping[str, Any], name: str) -> bool:
    """mmengine's averaging hook stores the average as 'state_dict', the original beside it."""
    return name == "ema_state_dict" and "steps" in checkpoint[name] and "state_dict" in checkpoint


def _find(
    node: Mapping[str, Any], prefer_ema: bool, depth: int
) -> tuple[dict[str, torch.Tensor], str] | None:
    if prefer_ema and (name := ema_container(node)):
        return _inside(node, name, depth)
    for name in _PLAIN:
        if found := _inside(node, name, depth):
            return found
    tensors = {key: value for key, value in node.items() if isinstance(value, torch.Tensor)}
    if any(isinstance(key, str) and "." in key for key in tensors) or (
        tensors and len(tensors) == len(node)
    ):
        return {str(key): value for key, value in tensors.items()}, ""
    for name in _AVERAGED:
        if found := _inside(node, name, depth):
            return found
    return None


def _inside(
    node: Mapping[str, Any], name: str, depth: int
) -> tuple[dict[str, torch.Tensor], str] | None:
    inner = node.get(name)
    if depth >= _DEPTH or not isinstance(inner, Mapping):
        return None
    found = _find(inner, False, depth + 1)
    if found is None:
        return None
    state, path = found
    return state, f"{name}.{path}" if path else name


def canonical(key: str) -> str:
    """A name without wrapper segments; attention inside a window or reduction counts as bare."""
    parts = [part for part in key.split(".") if part not in _WRAPPERS]
    kept = [part for i, part in enumerate(parts) if i == 0 or (part, parts[i - 1]) != ("attn",) * 2]
    return ".".join(kept)


def bare(key: str) -> str:
    """A canonical name without the owners in front."""
    parts = canonical(key).split(".")
    while len(parts) > 1 and parts[0] in _OWNERS:
        del parts[0]
    return ".".join(parts)


def match_keys(source: Iterable[str], reference: Iterable[str]) -> dict[str, str]:
    """Names of ``source`` mapped to names of ``reference``.

    Of all stacks of owners ('backbone.', 'model.backbone.', ...) to take off the source names and
    to put in front of them, the pair with the most matches is used, and of equal ones the shortest.
    Names that match as they are stay.
    """
    known = list(reference)
    exact = set(known)
    by_canonical = _unique(known)
    canonical_source = _unique(source)
    strip, add = best_prefixes(canonical_source, by_canonical)
    taken: dict[str, str] = {}
    for name, key in canonical_source.items():
        target = (
            by_canonical.get(add + name.removeprefix(strip)) if name.startswith(strip) else None
        )
        if target is not None:
            taken[key] = target
    used = set(taken.values())
    for name, key in canonical_source.items():
        if key in taken:
            continue
        target = key if key in exact else by_canonical.get(name)
        if target is not None and target not in used:
            taken[key] = target
            used.add(target)
    return taken


def best_prefixes(source: Iterable[str], reference: Iterable[str]) -> tuple[str, str]:
    """The prefix to take off and the prefix to add for the most matches."""
    names, known = list(source), set(reference)
    best = (0, 0, "", "")
    for strip in leading_owners(names):
        bare = [name.removeprefix(strip) for name in names if name.startswith(strip)]
        for add in leading_owners(known):
            hits = sum(add + name in known for name in bare)
            rank = (-hits, strip.count(".") + add.count("."), strip, add)
            if hits and rank < best:
                best = rank
    return best[2], best[3]


def leading_owners(names: Iterable[str]) -> list[str]:
    """All prefixes that consist of owner segments only, the empty one first."""
    found: Counter[str] = Counter({"": 1})
    for name in names:
        prefix = ""
        for part in name.split(".")[:-1]:
            if part not in _OWNERS:
                break
            prefix += f"{part}."
            found[prefix] += 1
    return sorted(found)


def _unique(keys: Iterable[str]) -> dict[str, str]:
    """Canonical name to key; where two keys share one, the key that is canonical itself wins."""
    names: dict[str, str] = {}
    for key in keys:
        name = canonical(key)
        if name not in names or key == name:
            names[name] = key
    return names


def strip_prefixes(
    state: Mapping[str, torch.Tensor], reference_keys: Iterable[str]
) -> dict[str, torch.Tensor]:
    """``state`` under the names of ``reference_keys`` where they match, unchanged elsewhere.

    Wrapper segments ('module.', '_orig_mod.') may stand anywhere, owners ('backbone.', 'model.') in
    front, on either side.
    """
    matched = match_keys(state, reference_keys)
    return {matched.get(key, key): value for key, value in state.items()}
