"""From the options of a segmentation data set to the coding of its label images."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from polaformer.datasets.class_sets import IGNORED, ClassSet, Color, voc_color
from polaformer.datasets.label_maps import LabelCoding
from polaformer.errors import UserError

REST = "rest"
_MAX_CLASSES = 255


def make_coding(
    classes: Sequence[str],
    known: ClassSet | None,
    *,
    label_values: Sequence[int | Sequence[int]] | None = None,
    label_colors: Sequence[Color] | None = None,
    reduce_zero_label: bool | None = None,
    ignore_values: Sequence[int] | str = (),
    ignore_colors: Sequence[Color] | str = (),
    converted: bool = False,
) -> LabelCoding:
    """The coding that options of ``SegmentationDataset`` mean; raises UserError where they clash.

    ``converted`` tells that a known set's label images were turned into class indices.
    """
    if len(classes) > _MAX_CLASSES:
        raise UserError(
            f"{len(classes)} classes are too many: class indices are 8-bit numbers 0..254, and 255 "
            "means ignored"
        )
    if reduce_zero_label and len(classes) == _MAX_CLASSES:
        raise UserError(
            f"{len(classes)} classes are too many: with reduce_zero_label at most 254 have a value "
            "below 255, which means ignored"
        )
    _no_clash(label_values, label_colors, reduce_zero_label, ignore_values, ignore_colors)
    if label_colors is not None:
        return _by_color(classes, label_colors, ignore_colors)
    values: tuple[tuple[int, ...], ...]
    ignored: tuple[int, ...] = ()
    if label_values is not None:
        values = _value_groups(label_values, len(classes))
    elif known is not None and reduce_zero_label is None and not converted:
        values, ignored = tuple((value,) for value in known.values), known.ignored
    else:
        first = int(bool(reduce_zero_label))
        values = tuple((index + first,) for index in range(len(classes)))
        ignored = (0,) if reduce_zero_label else ()
    return _by_value(classes, values, ignored, ignore_values)


def _no_clash(values: Any, colors: Any, zero: Any, ignore_values: Any, ignore_colors: Any) -> None:
    if zero not in (None, True, False):
        raise UserError(f"reduce_zero_label={zero!r} must be True, False or None")
    if values is not None and colors is not None:
        raise UserError("label_values and label_colors exclude each other: give one")
    for name, given in (("label_values", values), ("label_colors", colors)):
        if zero and given is not None:
            raise UserError(
                f"reduce_zero_label=True and {name} both say which value a class has: give one"
            )
    if colors is None and ignore_colors:
        raise UserError("ignore_colors belongs to label_colors; for values it is ignore_values")
    if colors is not None and ignore_values:
        raise UserError(
            "ignore_values does not go with label_colors; for colours it is ignore_colors"
        )


def _value_groups(given: Any, num_classes: int) -> tuple[tuple[int, ...], ...]:
    if isinstance(given, str | Mapping) or not isinstance(given, Sequence):
        raise UserError(f"label_values={given!r} must be a list with one value for each class")
    if len(given) != num_classes:
        raise UserError(
            f"label_values has {len(given)} entries for {num_classes} classes: {list(given)!r}; it "
            "needs the value of each class in turn"
        )
    groups = tuple(
        tuple(one) if isinstance(one, Sequence) and not isinstance(one, str) else (one,)
        for one in given
    )
    every = [value for group in groups for value in group]
    _whole_numbers("label_values", every)
    twice = sorted(value for value, count in Counter(every).items() if count > 1)
    if twice:
        raise UserError(f"label_values gives the value {twice[0]} to more than one class")
    return groups


def _whole_numbers(name: str, values: Any) -> None:
    wrong = [v for v in values if not isinstance(v, int) or isinstance(v, bool)]
    if wrong:
        raise UserError(f"{name}: {wrong[0]!r} is no whole number")


def _by_value(
    classes: Sequence[str],
    groups: Sequence[Sequence[int]],
    ignored: Sequence[int],
    more_ignored: Sequence[int] | str,
) -> LabelCoding:
    rest = _is_rest("ignore_values", more_ignored)
    extra = () if isinstance(more_ignored, str) else tuple(more_ignored)
    _whole_numbers("ignore_values", extra)
    table = {value: label for label, group in enumerate(groups) for value in group}
    both = sorted(set(extra) & table.keys())
    if both:
        raise UserError(f"ignore_values: {both[0]} is the value of a class")
    nothing = {*ignored, *extra, IGNORED} - table.keys()
    rule = f"{_ranges(sorted(table))} for the {len(classes)} classes"
    table.update(dict.fromkeys(nothing, IGNORED))
    if rest:
        rule += ", any other value is ignored"
    elif nothing:
        rule += f", {_ranges(sorted(nothing))} ignored"
    return LabelCoding(classes, table, rest_ignored=rest, rule=rule)


def _by_color(classes: Sequence[str], given: Any, ignored: Sequence[Color] | str) -> LabelCoding:
    colors = checked_colors("label_colors", given)
    if len(colors) != len(classes):
        raise UserError(
            f"label_colors has {len(colors)} colours for {len(classes)} classes; it needs one for "
            "each class in turn"
        )
    twice = [color for color, count in Counter(colors).items() if count > 1]
    if twice:
        raise UserError(f"label_colors gives {twice[0]} to more than one class")
    rest = _is_rest("ignore_colors", ignored)
    table = {color: label for label, color in enumerate(colors)}
    for color in () if rest else checked_colors("ignore_colors", ignored):
        if color in table:
            raise UserError(f"ignore_colors: {color} is the colour of a class")
        table[color] = IGNORED
    told = " ".join(f"{red},{green},{blue}" for red, green, blue in table)
    return LabelCoding(classes, {}, table, rest, f"the colours {told}")


def _is_rest(name: str, given: Any) -> bool:
    if isinstance(given, str) and given != REST:
        raise UserError(f"{name}={given!r} must be a list, or '{REST}' for all that is no class")
    return given == REST


def checked_colors(name: str, given: Any) -> tuple[Color, ...]:
    """``given`` as (red, green, blue) tuples of 0..255; raises UserError otherwise."""
    if isinstance(given, str | Mapping) or not isinstance(given, Sequence):
        raise UserError(f"{name}={given!r} must be a list of colours (red, green, blue)")
    colors = []
    for color in given:
        parts = tuple(color) if isinstance(color, Sequence) and not isinstance(color, str) else ()
        whole = all(isinstance(part, int) and 0 <= part <= 255 for part in parts)
        if len(parts) != 3 or not whole:
            raise UserError(f"{name}: {color!r} is no colour (red, green, blue) of 0..255")
        colors.append(parts)
    return tuple(colors)


def choose_palette(
    classes: Sequence[str],
    known: ClassSet | None,
    palette: Sequence[Color] | None,
    label_colors: Sequence[Color] | None,
) -> tuple[Color, ...]:
    """The colours that classes are drawn in: those given, the set's own, or Pascal VOC's map."""
    if palette is not None:
        colors = checked_colors("palette", palette)
        if len(colors) != len(classes):
            raise UserError(f"palette has {len(colors)} colours for {len(classes)} classes")
        return colors
    if label_colors is not None:
        return checked_colors("label_colors", label_colors)
    if known is not None:
        return known.palette
    return tuple(voc_color(index) for index in range(len(classes)))


def _ranges(values: Sequence[int]) -> str:
    """'0..2, 7, 255' of sorted numbers."""
    parts: list[list[int]] = []
    for value in values:
        if parts and value == parts[-1][1] + 1:
            parts[-1][1] = value
        else:
            parts.append([value, value])
    shown = [str(a) if a == b else f"{a}..{b}" for a, b in parts[:12]]
    return ", ".join(shown) + (", …" if len(parts) > 12 else "")
