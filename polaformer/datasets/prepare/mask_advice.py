"""From the values or colours that label images have to the options that a config needs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from polaformer.datasets.class_sets import IGNORED, Color, voc_color
from polaformer.datasets.label_coding import REST
from polaformer.datasets.prepare.label_files import Raw
from polaformer.datasets.prepare.mask_look import RawCount

_MAX_CLASSES = 255
_BLENDED = 30  # values in one file, on average, from which on they look blended
_TOLD = 12
_FEW = 0.5  # percent


@dataclass
class Proposal:
    """Classes that the files seem to have: the value or colour of each, and what to write.

    ``options`` are arguments of ``SegmentationDataset`` beside ``classes``; ``names`` stand in for
    those that only the user knows.
    """

    raw: list[Raw]
    names: tuple[str, ...]
    options: dict[str, Any] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)


def propose(raw: Mapping[Raw, RawCount], files: int, values_seen: int, thin: bool) -> Proposal:
    """What ``raw`` says about the classes of ``files`` label images.

    ``values_seen`` is the sum of the numbers of different values of each; ``thin`` tells that value
    0 forms lines only.
    """
    values = sorted(value for value in raw if isinstance(value, int))
    colors = [color for color in raw if isinstance(color, tuple)]
    blended = values_seen / max(1, files) > _BLENDED
    if colors:
        return _of_colors(raw, colors, blended)
    if not values:
        return Proposal([], (), problems=["not a single label image could be counted"])
    if refusal := _refusal(raw, values, blended):
        return Proposal([], (), problems=[refusal])
    return _of_values(values, thin)


def _refusal(raw: Mapping[Raw, RawCount], values: Sequence[int], blended: bool) -> str:
    """Why ``values`` cannot be classes, or ''."""
    if values[0] < 0:
        return f"there are negative values, from {values[0]}; classes are numbered from 0"
    if values == [IGNORED]:
        return "every pixel is 255, which means ignored; there is nothing to learn"
    if len(values) > _MAX_CLASSES + 1:
        return (
            f"there are {len(values):,} different values from {values[0]} to {values[-1]}; a label "
            f"image has at most {_MAX_CLASSES} classes. A number for each object (instances), or "
            "depths, are no classes"
        )
    if blended:
        total = sum(count.pixels for count in raw.values())
        often = [v for v in values if 100 * raw[v].pixels / total >= _FEW]
        return (
            f"there are {len(values)} different values, many in each file, and only "
            f"{len(often)} of them have at least {_FEW:g} % of the pixels ({_some(often)}): they "
            "look blended by resizing with smoothing, or by JPEG. Make the label images anew, with "
            "the nearest neighbour and as PNG; if all are classes, name them with --classes"
        )
    return ""


def _of_values(values: list[int], thin: bool) -> Proposal:
    if _spread(values):
        found = _named(values)
        found.options["label_values"] = tuple(values)
        if values != [0, IGNORED]:
            found.notes.append(
                "255 is taken for a class, as the values are spread over 0 to 255; if it means "
                f"ignored, leave it out: label_values={tuple(values[:-1])}"
            )
        return found
    classes = [value for value in values if value != IGNORED]
    found = _named(classes)
    if classes != list(range(len(classes))):
        found.options["label_values"] = tuple(classes)
    if IGNORED in values:
        found.notes.append("255 means ignored")
    if thin and len(classes) > 1:
        less = "label_values=" + str(tuple(classes[1:])) + " and ignore_values=(0,)"
        if classes == list(range(len(classes))):
            less = "reduce_zero_label=True"
        found.notes.append(
            "0 forms thin lines only, which seem to be borders: if it is no class, leave its name "
            f"out and write {less} instead, in both data sets"
        )
    elif classes[:1] == [0] and len(classes) > 2:
        found.notes.append(
            "0 is taken for a class of its own (background); if it means 'not labelled', leave its "
            "name out and write reduce_zero_label=True in both data sets"
            if classes == list(range(len(classes)))
            else "0 is taken for a class of its own (background)"
        )
    if len(classes) == 1:
        found.notes.append("there is only one class, so there is nothing to tell apart")
    return found


def _spread(values: Sequence[int]) -> bool:
    """Whether 255 seems to be a class: the values were stretched to be seen."""
    gaps = [after - before for before, after in pairwise(values)]
    return len(values) > 1 and values[0] == 0 and values[-1] == IGNORED and min(gaps) > 1


def _named(raw: Sequence[Raw]) -> Proposal:
    if len(raw) == 2 and raw[0] in (0, (0, 0, 0)):
        return Proposal(list(raw), ("background", "object"))
    return Proposal(list(raw), tuple(f"class_{i}" for i in range(len(raw))))


def _of_colors(raw: Mapping[Raw, RawCount], colors: Sequence[Color], blended: bool) -> Proposal:
    by_size = sorted(colors, key=lambda color: -raw[color].pixels)
    total = sum(raw[color].pixels for color in colors)
    kept = by_size
    if blended or len(colors) > _MAX_CLASSES:
        kept = [color for color in by_size if 100 * raw[color].pixels / total >= _FEW]
    number = {voc_color(index): index for index in range(256)}
    known = all(color in number for color in kept)
    if known:
        kept.sort(key=number.__getitem__)
    found = _named(kept)
    found.options["label_colors"] = list(kept)
    if len(kept) < len(by_size):
        rest = 100 * sum(raw[color].pixels for color in by_size if color not in kept) / total
        found.problems.append(
            f"there are {len(by_size):,} colours, and only {len(kept)} of them have at least "
            f"{_FEW:g} % of the pixels: the others ({rest:.2g} %) look blended by resizing with "
            "smoothing, or by JPEG. Make the label images anew, with the nearest neighbour and as "
            f"PNG, or leave the rest out with ignore_colors='{REST}'"
        )
    if known and len(kept) > 1:
        places = [number[color] for color in kept]
        found.notes.append(f"the colours are those of Pascal VOC's map at {_some(places)}")
    return found


def _some(values: Sequence[object]) -> str:
    shown = ", ".join(map(str, values[:_TOLD]))
    return shown if len(values) <= _TOLD else f"{shown}, … and {len(values) - _TOLD} more"
