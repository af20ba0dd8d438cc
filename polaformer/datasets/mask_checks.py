"""A look at every label image before training: broken files, sizes, values, absent classes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from polaformer.datasets.class_sets import IGNORED
from polaformer.datasets.decode import BadImage, upright_size
from polaformer.datasets.integrity import Size, looked_at, reason
from polaformer.datasets.label_maps import BadLabels, LabelCoding, label_counts
from polaformer.datasets.layout import name_some
from polaformer.datasets.sources import Reader


@dataclass
class MaskFindings:
    """What a look at label images found.

    ``sizes`` (width, height) or None where a file does not tell; ``bad`` (index, reason);
    ``pixels`` and ``images`` count every class (and 255) over the good ones, where values were
    looked at; ``values`` counts the pixels of every raw value or colour of the bad ones.
    """

    sizes: list[Size | None] = field(default_factory=list)
    bad: list[tuple[int, str]] = field(default_factory=list)
    pixels: np.ndarray | None = None
    images: np.ndarray | None = None
    values: Counter = field(default_factory=Counter)


def look_at_masks(reader: Reader, coding: LabelCoding, full: bool) -> MaskFindings:
    """Decode every label image and verify its values, or, unless ``full``, read sizes only."""

    def look(index: int) -> tuple[Size | None, np.ndarray | BadImage | OSError | None]:
        try:
            data = reader.read(index)
            size = upright_size(data)
        except (BadImage, OSError) as error:
            return None, error
        if not full:
            return size, None
        try:
            return size, label_counts(coding.decode(data))
        except BadImage as error:
            return size, error

    found = MaskFindings()
    if full:
        found.pixels, found.images = np.zeros(256, np.int64), np.zeros(256, np.int64)
    for index, (size, seen) in looked_at(len(reader.names), look, "label images"):
        found.sizes.append(size)
        if isinstance(seen, np.ndarray):
            found.pixels += seen
            found.images += seen > 0
        elif seen is not None:
            found.bad.append((index, reason(seen)))
            if isinstance(seen, BadLabels):
                found.values.update(seen.pixels)
    return found


def numbering_hint(found: MaskFindings, coding: LabelCoding) -> str | None:
    """What the values of bad label images say about the options, or None."""
    values = sorted(value for value in found.values if isinstance(value, int))
    if coding.colors is not None or not values:
        return None
    n = coding.num_classes
    plain = coding.values.get(0) == 0 and coding.values.get(n - 1) == n - 1
    seen = {value for value in values if value != IGNORED}
    if plain and n in seen and seen <= set(range(n + 1)):
        return (
            f"values reach from {min(seen)} to {n} with {n} classes: if the classes are numbered "
            f"1 to {n} and 0 is none, give reduce_zero_label=True; if 0 is a class, name it, too"
        )
    if 1 < len(values) == n:
        return (
            f"the files have {n} different values, as many as there are classes: if these stand "
            f"for them in this order, give label_values={tuple(values)}"
        )
    return None


def only_ignored_hint(found: MaskFindings, coding: LabelCoding) -> str | None:
    """The mistake of two classes stored as 0 and 255, where 255 is taken as ignored; or None."""
    if found.pixels is None or coding.colors is not None or coding.values.get(IGNORED) != IGNORED:
        return None
    present = np.flatnonzero(found.pixels).tolist()
    if coding.num_classes == 2 and present == [0, IGNORED] and coding.values.get(1) == 1:
        return (
            "the label images have the values 0 and 255 only, and 255 means ignored, so there is "
            "nothing of the second class; if 255 stands for it, give label_values=(0, 255)"
        )
    return None


def absent_classes(found: MaskFindings, classes: Sequence[str], coding: LabelCoding) -> list[str]:
    """What to say of classes without a pixel and of pixels that are ignored, if it matters."""
    if found.pixels is None:
        return []
    counts = found.pixels[: len(classes)]
    absent = [name for name, count in zip(classes, counts, strict=True) if not count]
    told = [f"classes without a pixel: {name_some(absent)}"] if absent else []
    zero_ignored = coding.values.get(0) == IGNORED and coding.values.get(1) == 0
    if zero_ignored and absent and classes[-1] in absent:
        told[0] += (
            f"; reduce_zero_label turns value 0 into ignored and {len(classes)} into "
            f"'{classes[-1]}', which never occurs: are the classes numbered from 0?"
        )
    return told
