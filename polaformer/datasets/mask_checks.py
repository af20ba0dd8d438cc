"""A look at every label image before training: broken files, sizes, values, absent classes."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

import numpy as np

from polaformer.datasets.class_sets import IGNORED
from polaformer.datasets.decode import BadImage, looks_sound, opened, orientation, upright_size
from polaformer.datasets.integrity import Size, reason
from polaformer.datasets.label_maps import BadLabels, LabelCoding, is_lossy, label_counts
from polaformer.datasets.layout import name_some
from polaformer.datasets.progress import looked_at
from polaformer.datasets.sources import TAIL, Reader

_MANY = 5  # classes from which on it can be told that most of them are absent
_TOLD = 10
TURNED = (
    "pictures are turned by their EXIF orientation, and their label images have the same size "
    "either way; if those were drawn on the picture as it is stored, write "
    "dict(type='polaformer.LoadImage', exif=False)"
)


@dataclass
class MaskFindings:
    """What a look at label images found.

    ``sizes`` (width, height), None where a file does not tell; ``bad`` (index, reason). If
    ``decoded``, ``pixels`` int64 [256] counts every class index and 255 over the good files,
    ``images`` the files that have it. ``values`` counts the pixels of every raw value or colour of
    the files that do not fit the classes, ``unknown`` the files that have one which is no class,
    ``lossy`` the files of each format that changes values, ``turned`` has the EXIF orientation of
    those with one.
    """

    decoded: bool = False
    sizes: list[Size | None] = field(default_factory=list)
    bad: list[tuple[int, str]] = field(default_factory=list)
    pixels: np.ndarray = field(default_factory=lambda: np.zeros(256, np.int64))
    images: np.ndarray = field(default_factory=lambda: np.zeros(256, np.int64))
    values: Counter = field(default_factory=Counter)
    unknown: Counter = field(default_factory=Counter)
    lossy: Counter = field(default_factory=Counter)
    turned: dict[int, int] = field(default_factory=dict)


def look_at_masks(reader: Reader, coding: LabelCoding, full: bool) -> MaskFindings:
    """Decode every label image and verify its values.

    Unless ``full``, sizes are read, and only files without an end mark are decoded.
    """

    found = MaskFindings(decoded=full)

    def look(index: int) -> tuple[Size | None, str, np.ndarray | Exception | None]:
        size, lossy = None, ""
        try:
            data = reader.read(index)
            kind = str(opened(data).format)
            lossy = kind if is_lossy(kind, data) else ""
            size = upright_size(data)
            if (turn := orientation(data)) != 1:
                found.turned[index] = turn
            if full or not looks_sound(data, data[-TAIL:]):
                return size, lossy, label_counts(coding.decode(data))
        except (BadImage, OSError) as error:
            return size, lossy, error
        return size, lossy, None

    for index, (size, lossy, seen) in looked_at(len(reader.names), look, "label images"):
        found.sizes.append(size)
        found.lossy.update([lossy] if lossy else [])
        if isinstance(seen, np.ndarray):
            found.pixels += seen
            found.images += seen > 0
        elif seen is not None:
            found.bad.append((index, reason(seen)))
            if isinstance(seen, BadLabels):
                found.values.update(seen.pixels)
                found.unknown.update(coding.unknown(seen.pixels))
    return found


def numbering_hint(found: MaskFindings, coding: LabelCoding) -> str | None:
    """What the values of label images that do not fit say about the options, or None."""
    values = sorted(value for value in found.values if isinstance(value, int))
    if coding.colors is not None or not values:
        return None
    count = len(coding.classes)
    seen = {value for value in values if value != IGNORED}
    if _is_index(coding) and count in seen and seen <= set(range(count + 1)):
        return (
            f"values reach from {min(seen)} to {count} with {count} classes: if the classes are "
            f"numbered 1 to {count} and 0 is none, give reduce_zero_label=True; if 0 is a class, "
            "name it, too"
        )
    if 1 < len(values) == count:
        return (
            f"these files have {count} different values, as many as there are classes: if they "
            f"stand for the classes in this order, give label_values={tuple(values)}"
        )
    return None


def unknown_values(found: MaskFindings, coding: LabelCoding) -> str | None:
    """'values that are no class: 7 in 3 files', and how to ignore them; None if there are none."""
    if not found.unknown:
        return None
    often = found.unknown.most_common(_TOLD)
    told = ", ".join(f"{raw} in {count:,} file{'s' * (count != 1)}" for raw, count in often)
    more = len(found.unknown) - len(often)
    told += f", … and {more:,} more" if more else ""
    remedy = coding.remedy(sorted(found.unknown))
    what = "values" if coding.colors is None else "colours"
    return f"{what} that are no class: {told}" + (f"; {remedy}" if remedy else "")


def nothing_to_learn(pixels: np.ndarray, files: int, coding: LabelCoding) -> str | None:
    """Why ``files`` label images with ``pixels`` int64 [256] teach nothing, or None.

    Either all is ignored, or all but one class: a class stored as 255, which is taken as ignored.
    """
    present = np.flatnonzero(pixels).tolist()
    if present == [IGNORED]:
        only = [value for value, label in coding.values.items() if label == IGNORED] == [IGNORED]
        ignored = "255 (ignored)" if only and not coding.rest_ignored else "ignored"
        return (
            f"every pixel of the {files:,} label images is {ignored}: nothing to learn; allowed: "
            f"{coding.rule}"
        )
    if len(coding.classes) < 2 or len(present) != 2 or present[1] != IGNORED:
        return None
    if not _is_index(coding):
        return None
    left = present[0]
    lost = f"'{coding.classes[1 - left]}'" if len(coding.classes) == 2 else "the other classes"
    two = "" if len(coding.classes) == 2 else "two classes and "
    return (
        f"the label images have the values {left} and 255 only, and 255 means ignored, so there is "
        f"nothing of {lost}; if 255 stands for a class, give {two}label_values=({left}, 255)"
    )


def lossy_files(found: MaskFindings) -> str | None:
    """What to say of label images in a format that changes values; None if there are none."""
    if not found.lossy:
        return None
    return (
        f"{found.lossy.total():,} label images are {' or '.join(found.lossy)}, which changes "
        "values on saving, mostly along the edges: make them anew in an exact format like PNG"
    )


def absent_classes(found: MaskFindings, coding: LabelCoding) -> str | None:
    """'classes without a pixel: …', with a guess why; None if every class occurs or is unknown."""
    counts = found.pixels[: len(coding.classes)].tolist()
    absent = [name for name, count in zip(coding.classes, counts, strict=True) if not count]
    if not found.decoded or not absent:
        return None
    told = f"classes without a pixel: {name_some(absent, _TOLD)}"
    if len(counts) >= _MANY and 2 * len(absent) > len(counts):
        return (
            f"{told}: {len(absent)} of {len(counts)}; is this the data set you mean? Own names are "
            "classes = ('first', 'second', …)"
        )
    last, highest = coding.classes[-1], len(coding.classes)
    shifted = coding.values.get(0) == IGNORED and coding.values.get(highest) == highest - 1
    if shifted and last in absent and found.pixels[IGNORED]:
        told += (
            f" (0 is ignored and '{last}' is value {highest}, which does not occur: if the classes "
            "are numbered from 0, give reduce_zero_label=False)"
        )
    return told


def _is_index(coding: LabelCoding) -> bool:
    """Whether the value is the class index and 255 is ignored."""
    count = len(coding.classes)
    return all(coding.values.get(i) == i for i in range(count)) and (
        coding.values.get(IGNORED) == IGNORED
    )
