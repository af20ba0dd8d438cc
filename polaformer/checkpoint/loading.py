"""Put weights into a module: match names, convert, resize, check everything, then copy."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from typing import Any

import torch
from torch import nn

from polaformer.checkpoint import tables
from polaformer.checkpoint.convert import Converter, converter_for
from polaformer.checkpoint.errors import CheckpointError
from polaformer.checkpoint.origin import UNKNOWN, Origin, other_kind, shape_message
from polaformer.checkpoint.state import match_keys

# Recomputed from sizes by whoever builds the model; never loaded, never missed.
_DERIVED = ("*relative_position_index", "*attn_mask", "*RoPE.angle", "*RoPE_linear.angle")
# Absent from classifier checkpoints or older files; their absence is reported, not counted.
_OPTIONAL = ("norms.*", "*.norms.*", "*num_batches_tracked")
_SHOWN = 6
# Segments of names that belong to the body of a network: unused ones mean another architecture.
_BODY = re.compile(r"(^|\.)(stages?|blocks?|layers?)\d*\.")


@dataclass
class LoadReport:
    """What became of the tensors of a file.

    ``total`` counts the tensors that the file could have provided: of the backbone alone where the
    file holds nothing for the rest of the model (``scope`` says which), without those that the user
    exempted and without output norms that the file does not have. ``surplus`` names those of
    ``ignored`` that lie in blocks or stages: the file's model is deeper or another one.
    ``other_kind`` says so if the file names another type of model or backbone, ``classes`` are
    those that it was trained on, where it tells.
    """

    loaded: int
    total: int
    resized: list[str] = field(default_factory=list)
    ignored: list[str] = field(default_factory=list)
    surplus: list[str] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    mismatched: list[str] = field(default_factory=list)
    converter: str | None = None
    path: str | None = None
    container: str = ""
    scope: str = "model"
    other_kind: str = ""
    classes: tuple[str, ...] | None = None

    def __str__(self) -> str:
        parts = [
            f"{self.loaded} of {self.total} loaded ({self.scope} tensors)",
            f"{len(self.resized)} resized",
            f"ignored: {_names(self.ignored)}",
            f"missing: {_names(self.missing)}",
        ]
        if self.mismatched:
            parts.append(f"left as they were for their shape: {_names(self.mismatched)}")
        if self.converter:
            parts.append(f"converted from {self.converter}")
        return ", ".join(parts)


def _names(keys: Sequence[str]) -> str:
    if not keys:
        return "none"
    shown = " ".join(keys[:_SHOWN])
    return shown if len(keys) <= _SHOWN else f"{shown} and {len(keys) - _SHOWN} more"


def _fits(key: str, patterns: Sequence[str]) -> bool:
    return any(fnmatchcase(key, pattern) for pattern in patterns)


@dataclass(frozen=True)
class Source:
    """The tensors of a file under their names there, and where they come from."""

    state: Mapping[str, torch.Tensor]
    grids: Mapping[str, Sequence[int]]
    label: str
    container: str = ""
    path: str | None = None
    origin: Origin = UNKNOWN


def apply_state(
    module: nn.Module,
    source: Source,
    *,
    min_match: float,
    allow_shape_mismatch: Sequence[str],
    converter: Converter | str | None,
    prefix: str | None,
    logger: logging.Logger,
) -> LoadReport:
    """Load ``source`` into ``module``; nothing is written unless every check passes."""
    target = {
        key: value
        for key, value in module.state_dict().items()
        if isinstance(value, torch.Tensor) and not _fits(key, _DERIVED)
    }
    source, dropped = _below(source, prefix)
    state, matched, used = _best_match(source.state, target, converter)
    wanted, scope = _scope(module, target, set(matched.values()))
    by_target = {name: key for key, name in matched.items()}
    unused = sorted(key for key in state if key not in matched)
    report = LoadReport(
        loaded=0,
        total=0,
        ignored=sorted([*dropped, *unused]),
        surplus=[key for key in unused if _BODY.search(key)],
        missing=sorted(set(target) - set(by_target)),
        converter=used.name if used else None,
        path=source.path,
        container=source.container,
        scope=scope,
        other_kind=other_kind(source.origin, module),
        classes=source.origin.classes,
    )
    start = f"{source.label}: {report.other_kind}; " if report.other_kind else f"{source.label}: "
    _check_match(wanted & set(by_target), wanted, min_match, state, target, start)
    fresh = min_match < 1
    ready = _prepare(module, state, target, by_target, source, allow_shape_mismatch, fresh, report)
    _check_finite(ready, source.label)
    report.loaded = len(wanted & set(ready))
    report.total = len(wanted - set(report.mismatched))
    if report.total and report.loaded / report.total < min_match:
        raise CheckpointError(f"{source.label}: {report}; at least {min_match:.0%} must match")
    module.load_state_dict(ready, strict=False)
    logger.info("%s: %s", source.label, report)
    if report.surplus:
        logger.warning("%s: %s", source.label, surplus_text(report))
    return report


def surplus_text(report: LoadReport) -> str:
    """What ``report.surplus`` means, with an example."""
    guess = report.other_kind or "is it another architecture, or a shallower one?"
    return (
        f"{len(report.surplus)} tensors of blocks or stages have no place in this model, for "
        f"example {report.surplus[0]}; {guess}"
    )


def _below(source: Source, prefix: str | None) -> tuple[Source, list[str]]:
    """The part of the file below ``prefix``, without it; the names of the rest."""
    kept = {key: value for key, value in source.state.items() if not _fits(key, _DERIVED)}
    if not prefix:
        return replace(source, state=kept), []
    prefix = prefix if prefix.endswith(".") else f"{prefix}."
    below = {k.removeprefix(prefix): v for k, v in kept.items() if k.startswith(prefix)}
    if not below:
        example = next(iter(kept), "no tensor")
        raise CheckpointError(
            f"{source.label}: no name starts with '{prefix}'; the file has '{example}'"
        )
    grids = {key.removeprefix(prefix): grid for key, grid in source.grids.items()}
    rest = [key for key in kept if not key.startswith(prefix)]
    return replace(source, state=below, grids=grids), rest


def _best_match(
    state: Mapping[str, torch.Tensor],
    target: Mapping[str, torch.Tensor],
    converter: Converter | str | None,
) -> tuple[Mapping[str, torch.Tensor], dict[str, str], Converter | None]:
    """The state as it is, or converted where that matches more names."""
    direct = match_keys(state, target)
    found = converter_for(converter, state)
    if found is None:
        return state, direct, None
    converted = found.to_ours(state)
    matched = match_keys(converted, target)
    if converter is None and len(matched) <= len(direct):
        return state, direct, None
    return converted, matched, found


def _scope(
    module: nn.Module, target: Mapping[str, torch.Tensor], matched: set[str]
) -> tuple[set[str], str]:
    """The tensors to count: the backbone's if the file has nothing else for the model."""
    wanted = {key for key in target if key in matched or not _fits(key, _OPTIONAL)}
    whole = "backbone" if hasattr(module, "get_layer_depth") else "model"
    if not isinstance(getattr(module, "backbone", None), nn.Module):
        return wanted, whole
    inside = {key for key in wanted if key.startswith("backbone.")}
    if inside and not any(not key.startswith("backbone.") for key in matched):
        return inside, "backbone"
    return wanted, "model"


def _check_match(
    found: set[str],
    wanted: set[str],
    min_match: float,
    state: Mapping[str, torch.Tensor],
    target: Mapping[str, torch.Tensor],
    start: str,
) -> None:
    if not wanted:
        raise CheckpointError(f"{start}the model has no tensors to load into")
    if found and len(found) / len(wanted) >= min_match:
        return
    strangers = sorted((key for key in state if key not in target), key=lambda key: "head" in key)
    theirs = next(iter(strangers), next(iter(state), "no tensor"))
    ours = next((key for key in target if key in wanted - found), next(iter(target)))
    first = theirs.split(".", 1)[0]
    common = all(key.startswith(f"{first}.") for key in state) and not found
    hint = f"; all names in the file start with '{first}.': prefix='{first}.' drops it"
    raise CheckpointError(
        f"{start}{len(found)} of {len(wanted)} tensors match, at least {min_match:.0%} must; "
        f"the file has '{theirs}', the model wants '{ours}'{hint if common and state else ''}"
    )


def _prepare(
    module: nn.Module,
    state: Mapping[str, torch.Tensor],
    target: Mapping[str, torch.Tensor],
    by_target: Mapping[str, str],
    source: Source,
    allow_shape_mismatch: Sequence[str],
    fresh: bool,
    report: LoadReport,
) -> dict[str, torch.Tensor]:
    """Every matched tensor in the shape and type of the model, or an error that names it."""
    ready: dict[str, torch.Tensor] = {}
    wrong: list[str] = []
    for name, key in by_target.items():
        value, goal = state[key], target[name]
        accepted = _fits(name, allow_shape_mismatch)
        if tables.is_table(name) and _same_width(name, value, goal):
            told = tables.told_grid(module, name, goal.shape)
            stated = tables.stated_grid(source.grids, key, name)
            try:
                value = tables.fit_table(value, name, tuple(goal.shape), told, stated)
            except CheckpointError:
                if not accepted:
                    raise
                report.mismatched.append(name)
                continue
            if value is not state[key]:
                report.resized.append(name)
        if value.numel() == goal.numel() == 1:
            value = value.reshape(goal.shape)  # counters are stored as () or (1,)
        if value.shape != goal.shape:
            if accepted:
                report.mismatched.append(name)
            else:
                wrong.append(name)
            continue
        if value.is_floating_point() != goal.is_floating_point():
            raise CheckpointError(
                f"{source.label}: {name} is {value.dtype} in the file, {goal.dtype} in the model"
            )
        ready[name] = value.to(goal.dtype)
    if wrong:
        shapes = {
            name: (tuple(state[by_target[name]].shape), tuple(target[name].shape)) for name in wrong
        }
        why = shape_message(module, shapes, source.origin, fresh)
        raise CheckpointError(f"{source.label}: {why}")
    return ready


def _same_width(name: str, value: torch.Tensor, goal: torch.Tensor) -> bool:
    """Whether two tables differ in positions only."""
    dimensions = 2 if name.endswith(tables.BIAS_TABLE) else 3
    return value.dim() == goal.dim() == dimensions and value.shape[-1] == goal.shape[-1]


def _check_finite(ready: Mapping[str, torch.Tensor], label: str) -> None:
    broken = [
        key
        for key, value in ready.items()
        if value.is_floating_point() and not bool(torch.isfinite(value).all())
    ]
    if broken:
        raise CheckpointError(f"{label}: not finite (NaN or infinite): {_names(broken)}")


def label_of(path: Any) -> str:
    """How a message names the origin of weights."""
    return str(path) if path is not None else "the given weights"
