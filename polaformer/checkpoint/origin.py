"""What a weight file says about the model that it is of, and what follows where ours differs."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torch import nn

Shape = tuple[int, ...]

_SHOWN = 3
_PATTERNS = 6
# Types whose files fit another one, because every tensor has the same name there.
_SAME = {"EncoderDecoder": "Segmentor"}
# The last layer of a plain classifier, where the number of rows is that of the classes.
_CLASSIFIER = re.compile(r"((head|fc|classifier)\.|head\.fc\.)(weight|bias)")


@dataclass(frozen=True)
class Origin:
    """Names of the classes and types of the model that were trained; None where nothing tells."""

    classes: tuple[str, ...] | None = None
    model: str | None = None
    backbone: str | None = None


UNKNOWN = Origin()


def origin_of(checkpoint: Mapping[str, Any]) -> Origin:
    """What ``meta`` of a checkpoint tells; others than ours tell the classes at most."""
    meta = _mapping(checkpoint.get("meta"))
    data = _mapping(meta.get("dataset_meta"))
    named = data.get("classes") or data.get("CLASSES") or meta.get("CLASSES")
    classes = tuple(map(str, named)) if isinstance(named, list | tuple) and named else None
    model = _mapping(_mapping(meta.get("config")).get("model"))
    return Origin(classes, _type(model), _type(_mapping(model.get("backbone"))))


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _type(config: Mapping[str, Any]) -> str | None:
    name = config.get("type")
    return name.rpartition(".")[2] if isinstance(name, str) and name else None


def other_kind(origin: Origin, module: nn.Module) -> str:
    """A sentence if the file is of another type of model or backbone than ``module``, or ''."""
    inner = getattr(module, "backbone", None)
    if not isinstance(inner, nn.Module):
        ours, known = type(module).__name__, origin.backbone
        differs = known is not None and known != ours
        return f"the file's backbone is of type {known}, this is a {ours}" if differs else ""
    for what, known, built in (
        ("the file is of a model", origin.model, type(module).__name__),
        ("the file's backbone is", origin.backbone, type(inner).__name__),
    ):
        if known is not None and _SAME.get(known, known) != _SAME.get(built, built):
            return f"{what} of type {known}, the config builds a {built}"
    return ""


def shape_message(
    module: nn.Module, shapes: Mapping[str, tuple[Shape, Shape]], origin: Origin, fresh: bool
) -> str:
    """Which tensors differ in shape, why as far as it is known, and what can be done.

    Args:
        shapes: name -> shape in the file and in the model, of all that differ.
        fresh: whether layers may keep the values that they have instead.
    """
    name, (theirs, ours) = next(iter(shapes.items()))
    message = f"{name} has the shape {theirs} in the file and {ours} in the model"
    if len(shapes) > 1:
        message += f", and {len(shapes) - 1} more differ"
    classes, number = _other_classes(module, shapes, origin)
    reasons = [text for text in (other_kind(origin, module), classes) if text]
    advice = [f"set num_classes={number}"] if number else []
    patterns = layer_patterns(shapes)
    if fresh and len(patterns) <= _PATTERNS:
        start = f"load_from=dict(checkpoint=…, allow_shape_mismatch={patterns})"
        advice.append(f"accept fresh layers with {start}")
    elif not fresh and classes and not number:
        advice.append("take the config that it was trained with")
    told = "; ".join([message, *reasons])
    return f"{told}: {', or '.join(advice)}" if advice else told


def _other_classes(
    module: nn.Module, shapes: Mapping[str, tuple[Shape, Shape]], origin: Origin
) -> tuple[str, int | None]:
    """A sentence if the numbers of classes differ, and the number to set where it is the cause."""
    for name, (theirs, ours) in shapes.items():
        if not theirs or not ours or theirs[0] == ours[0] or theirs[1:] != ours[1:]:
            continue
        plain = _CLASSIFIER.fullmatch(name) is not None
        in_head = "head" in name.partition(".")[0] and "rpn_head" not in name
        if not (plain or in_head):
            continue
        here = _num_classes(module, name) or (ours[0] if plain else None)
        if origin.classes is not None:
            there = len(origin.classes)
            told = f"the file was trained on {there} classes ({_some(origin.classes)})"
        elif plain:
            there = theirs[0]
            told = f"the file's head was trained for {there} classes"
        else:
            continue
        if here != there:
            known = f"{told}, the config has {here}" if here else told
            return known, there if plain and theirs[0] == there else None
    return "", None


def _num_classes(module: nn.Module, name: str) -> int | None:
    """``num_classes`` of the innermost module around the tensor ``name`` that has one."""
    parts = name.split(".")[:-1]
    for end in range(len(parts), 0, -1):
        found = getattr(module.get_submodule(".".join(parts[:end])), "num_classes", None)
        if isinstance(found, int):
            return found
    return None


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:_SHOWN]) + (", …" if len(names) > _SHOWN else "")


def layer_patterns(names: Collection[str]) -> list[str]:
    """The narrowest patterns for whole layers; numbered ones of the same name share one."""
    layers = list(dict.fromkeys(name.rpartition(".")[0] or name for name in names))
    plain = [re.sub(r"(?<=\.)\d+(?=\.)", "*", layer) for layer in layers]
    chosen = [p if plain.count(p) > 1 else layer for p, layer in zip(plain, layers, strict=True)]
    return [layer if layer in names else f"{layer}.*" for layer in dict.fromkeys(chosen)]
