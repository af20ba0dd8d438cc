"""What a label image holds, before anybody says which value stands for which class."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import cast

import numpy as np

from polaformer.datasets.class_sets import IGNORED, Color
from polaformer.datasets.decode import decoding, opened, orientation, upright_size
from polaformer.datasets.integrity import Size
from polaformer.datasets.label_maps import BadLabels, LabelCoding, is_lossy

MOST_VALUES = 4096
"""A file with more different values or colours than this holds no classes."""

Raw = int | Color
_MARK = (1, 2, 3)
_NO_VALUES = LabelCoding((), {})
_NO_COLORS = LabelCoding((), {}, {_MARK: IGNORED})
_ONLY_ZERO = LabelCoding(("zero",), {0: 0}, rest_ignored=True)
_DEPTHS = {
    "1": "1 bit",
    "L": "gray, 8 bits",
    "LA": "gray with alpha",
    "P": "palette",
    "PA": "palette with alpha",
    "RGB": "RGB",
    "RGBA": "RGBA",
    "F": "floating point",
}


@dataclass(frozen=True)
class LabelFile:
    """Size (width, height), encoding in words, and the pixels of every value or colour.

    ``is_picture`` tells that there are too many of them for classes; then they are not counted.
    ``turned`` is the EXIF orientation.
    """

    size: Size
    encoding: str
    lossy: bool
    colored: bool
    pixels: Mapping[Raw, int]
    is_picture: bool = False
    turned: int = 1

    @property
    def is_gray(self) -> bool:
        """Whether this cannot be a file of colours that happens to be black and white."""
        other = any(value not in (0, 255) for value in self.pixels)
        return not self.colored and other and ("gray" in self.encoding or "32" in self.encoding)


def look_at_labels(data: bytes, colored: bool = False) -> LabelFile:
    """Count the values of a label image, or its colours where values make no sense.

    ``colored`` asks for colours also where red, green and blue are equal. Raises BadImage for a
    file that cannot be read as either.
    """
    size = upright_size(data)
    with opened(data) as image:
        kind, mode = str(image.format), image.mode
    encoding = f"{kind}, {_DEPTHS.get(mode, '16 or 32 bits' if mode.startswith('I') else mode)}"
    pixels, colored = _pixels_of(data, mode, size, colored)
    many = pixels is None or len(pixels) > MOST_VALUES
    kept = {} if pixels is None or many else pixels
    return LabelFile(size, encoding, is_lossy(kind, data), colored, kept, many, orientation(data))


def _pixels_of(
    data: bytes, mode: str, size: Size, colored: bool
) -> tuple[Mapping[Raw, int] | None, bool]:
    """Pixels of every value or colour (None: too many), and whether these are colours."""
    if mode in ("RGB", "RGBA"):
        colors = _colors(data)
        if colored or colors is None or any(len(set(color)) > 1 for color in colors):
            return cast("Mapping[Raw, int] | None", colors), True
        return {color[0]: count for color, count in colors.items()}, False
    pixels, refused = (None, None) if colored else _counted(_NO_VALUES, data)
    if pixels is not None:
        return pixels, False
    try:
        return _counted(_NO_COLORS, data)[0] or {_MARK: size[0] * size[1]}, True
    except BadLabels as error:
        raise refused or error from None


def _colors(data: bytes) -> dict[Color, int] | None:
    """Pixels of every colour, whatever its transparency; None if there are too many.

    A photograph has millions, which a dictionary would hold at a gigabyte.
    """
    with opened(data) as image, decoding():
        found = image.convert("RGB").getcolors(MOST_VALUES)
    return None if found is None else {cast("Color", color): count for count, color in found}


def _counted(
    nothing: LabelCoding, data: bytes
) -> tuple[Mapping[Raw, int] | None, BadLabels | None]:
    """Pixels of all that ``data`` has, which a coding that knows nothing refuses, or the refusal.

    Neither is there for a picture of ``_MARK`` alone.
    """
    try:
        nothing.decode(data)
    except BadLabels as error:
        if error.pixels:
            return error.pixels, None
        if nothing.colors is not None:
            raise
        return None, error
    return None, None


def thinness(data: bytes) -> tuple[int, int]:
    """(pixels of value 0 beside another value, pixels of value 0): lines have almost only such."""
    zero = _ONLY_ZERO.decode(data) == 0
    count = int(zero.sum())
    beside = np.zeros_like(zero)
    for one, other in ((np.s_[:, 1:], np.s_[:, :-1]), (np.s_[1:], np.s_[:-1])):
        beside[one] |= ~zero[other]
        beside[other] |= ~zero[one]
    return int((beside & zero).sum()), count
