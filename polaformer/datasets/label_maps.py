"""From the bytes of a label image to class indices, or to a reason why not."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from PIL import Image

from polaformer.datasets.class_sets import IGNORED, Color
from polaformer.datasets.decode import BadImage, decoding, opened, upright

_PNG = b"\x89PNG\r\n\x1a\n"
_PNG_GRAY = 0
_TIFF_BITS = 258
LOSSY = ("JPEG", "MPO", "WEBP", "JPEG2000", "AVIF")
"""Formats that change values on saving; WebP has an exact kind, too (``is_lossy``)."""
_BLENDED = 15  # values in one file that are no class, from which on they look blended
_MAX_NAMED = 5


class BadLabels(BadImage):
    """A label image that does not fit the classes.

    ``pixels`` counts the pixels of every value, or of every colour, that it has.
    """

    def __init__(self, reason: str, pixels: Mapping[int | Color, int] | None = None) -> None:
        super().__init__(reason)
        self.pixels = dict(pixels or {})


class LabelCoding:
    """Which value or colour of a label image stands for which class.

    Args:
        classes: names of the classes, at most 255.
        values: class index, or 255 for ignored, of every allowed value.
        colors: the same of every allowed colour (red, green, blue); then values play no part.
        rest_ignored: every other value or colour is ignored instead of being an error.
        rule: what is allowed, in words.
    """

    def __init__(
        self,
        classes: Sequence[str],
        values: Mapping[int, int],
        colors: Mapping[Color, int] | None = None,
        rest_ignored: bool = False,
        rule: str = "",
    ) -> None:
        self.classes = tuple(classes)
        self.values = dict(values)
        self.colors = None if colors is None else dict(colors)
        self.rest_ignored = rest_ignored
        self.rule = rule
        self._table = bytes(self.values.get(value, IGNORED) for value in range(256))
        if self.colors is not None:
            self._places: np.ndarray | None = None
            self._labels = np.array([IGNORED, *self.colors.values()], dtype=np.uint8)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.rule})"

    def decode(self, data: bytes) -> np.ndarray:
        """uint8 [H, W] of class indices and 255, as seen after turning as EXIF says.

        Raises BadImage for a broken file, BadLabels for values or colours that are not allowed.
        """
        with opened(data) as image, decoding():
            image.load()
            kind, turned = str(image.format), upright(image)
            if self.colors is not None:
                return self.of_colors(_rgb(turned), kind)
            return self.of_values(_values(turned, _gray_step(image, data), data), kind)

    def of_values(self, values: np.ndarray, kind: str = "") -> np.ndarray:
        """Class indices of an array of whole numbers [H, W]; ``kind`` is the file's format."""
        if values.dtype != np.uint8:
            if values.size and (int(values.min()) < 0 or int(values.max()) > 255):
                return self._of_deep_values(values, kind)
            values = values.astype(np.uint8)
        counts = label_counts(values)
        found = np.flatnonzero(counts).tolist()
        if not self.rest_ignored and any(value not in self.values for value in found):
            raise self._bad_values({value: int(counts[value]) for value in found}, kind)
        labels = bytearray(values.tobytes()).translate(self._table)
        return np.frombuffer(labels, dtype=np.uint8).reshape(values.shape)

    def _of_deep_values(self, values: np.ndarray, kind: str) -> np.ndarray:
        found, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
        if not self.rest_ignored and any(value not in self.values for value in found.tolist()):
            pixels = dict(zip(found.tolist(), counts.tolist(), strict=True))
            raise self._bad_values(pixels, kind)
        table = [self.values.get(value, IGNORED) for value in found.tolist()]
        return np.array(table, dtype=np.uint8)[inverse].reshape(values.shape)

    def of_colors(self, pixels: np.ndarray, kind: str = "") -> np.ndarray:
        """Class indices of an RGB array uint8 [H, W, 3]."""
        codes = _codes(pixels)
        places = self._color_places()[codes]
        if not self.rest_ignored and not places.all():
            raise self._bad_colors(codes, places == 0, kind)
        return self._labels[places]

    def _color_places(self) -> np.ndarray:
        """Position in the table, from 1, of every colour there is; 16 MB, made when first used."""
        if self._places is None:
            table = {} if self.colors is None else self.colors
            places = np.zeros(1 << 24, dtype=np.min_scalar_type(len(table)))
            places[[_packed(color) for color in table]] = np.arange(1, len(table) + 1)
            self._places = places  # filled already: several threads may be here
        return self._places

    def __getstate__(self) -> dict[str, Any]:
        state = dict(self.__dict__)
        if self.colors is not None:
            state["_places"] = None
        return state

    def unknown(self, found: Iterable[int | Color]) -> list[int | Color]:
        """Those values, or colours, that are neither a class nor ignored."""
        known: Mapping = self.values if self.colors is None else self.colors
        return [] if self.rest_ignored else [raw for raw in found if raw not in known]

    def remedy(self, unknown: Sequence[int | Color]) -> str:
        """How to ignore a few ``unknown`` values or colours; '' for many."""
        if not 0 < len(unknown) <= _MAX_NAMED:
            return ""
        name = "ignore_values" if self.colors is None else "ignore_colors"
        return f"if that is no class, {name}={tuple(unknown)} ignores it"

    def _bad_values(self, pixels: dict[int, int], kind: str) -> BadLabels:
        bad = sorted(value for value in pixels if value not in self.values)
        named = ", ".join(f"{value} ({_pixels(pixels[value])})" for value in bad[:_MAX_NAMED])
        more = f", … and {len(bad) - _MAX_NAMED} more" if len(bad) > _MAX_NAMED else ""
        lossy = _smeared(kind, len(bad))
        return BadLabels(
            f"{'a value that is' if len(bad) == 1 else 'values that are'} no class: "
            f"{named}{more}; allowed: {self.rule}{lossy}",
            pixels,  # type: ignore[arg-type]
        )

    def _bad_colors(self, codes: np.ndarray, unknown: np.ndarray, kind: str) -> BadLabels:
        found, counts = np.unique(codes[unknown], return_counts=True)
        order = np.argsort(-counts, kind="stable")
        named = "; ".join(
            f"{_unpacked(int(found[i]))} ({_pixels(int(counts[i]))}, nearest "
            f"{self._nearest(int(found[i]))})"
            for i in order[:_MAX_NAMED]
        )
        more = f"; … and {len(found) - _MAX_NAMED} more" if len(found) > _MAX_NAMED else ""
        share = counts.sum() / codes.size
        every, every_count = np.unique(codes, return_counts=True)
        pixels = zip(map(_unpacked, every.tolist()), every_count.tolist(), strict=True)
        every_gray = all(len(set(_unpacked(code))) == 1 for code in every.tolist())
        if every_gray:
            lossy = ". The picture is gray: for class indices leave label_colors out"
        else:
            lossy = _smeared(kind, len(found))
        return BadLabels(
            f"{len(found):,} colour(s) that are not in the table, {_pixels(int(counts.sum()))} "
            f"({share:.1%}): {named}{more}{lossy}",
            dict(pixels),  # type: ignore[arg-type]
        )

    def _nearest(self, code: int) -> str:
        wanted = np.array(_unpacked(code))
        table = {} if self.colors is None else self.colors
        color = min(table, key=lambda one: int(((np.array(one) - wanted) ** 2).sum()))
        label = table[color]
        return f"{color} = {'ignored' if label == IGNORED else self.classes[label]}"


def label_counts(labels: np.ndarray) -> np.ndarray:
    """Pixels of every value 0..255 of a uint8 array, int64 [256]."""
    # PIL counts bytes without widening them, which np.bincount does (8 bytes a pixel).
    flat = np.ascontiguousarray(labels).reshape(1, -1) if labels.ndim != 2 else labels
    if not flat.size:
        return np.zeros(256, dtype=np.int64)
    return np.array(Image.fromarray(flat).histogram(), dtype=np.int64)


def _packed(color: Color) -> int:
    return color[0] | color[1] << 8 | color[2] << 16


def _unpacked(code: int) -> Color:
    return code & 255, code >> 8 & 255, code >> 16


def _codes(pixels: np.ndarray) -> np.ndarray:
    """One number for the colour of each pixel of uint8 [H, W, 3 or more]."""
    padded = np.zeros((*pixels.shape[:2], 4), dtype=np.uint8)
    padded[..., :3] = pixels[..., :3]
    return padded.view("<u4")[..., 0]


def _pixels(count: int) -> str:
    return f"{count:,} pixel{'s' * (count != 1)}"


def is_lossy(kind: str, data: bytes) -> bool:
    """Whether an image file of format ``kind`` changed the values that it was saved with."""
    exact = kind == "WEBP" and b"VP8L" in data[:64]
    return kind in LOSSY and not exact


def _smeared(kind: str, different: int) -> str:
    """Why there are so many ``different`` values or colours that are no class, or ''."""
    if kind in LOSSY and different > _MAX_NAMED:
        return (
            f". {kind} changes values on saving: label images must be in an exact format like PNG"
        )
    if different < _BLENDED:
        return ""
    return ". So many look blended: was it resized with smoothing, or saved as JPEG once?"


def _gray_step(image: Image.Image, data: bytes) -> int:
    """What PIL multiplies gray of 2 or 4 bits with, to reach from 0 to 255; 1 for other images."""
    bits = 8
    if data.startswith(_PNG) and data[25] == _PNG_GRAY:
        bits = data[24]
    elif image.format == "TIFF" and image.mode == "L":
        found = getattr(image, "tag_v2", {}).get(_TIFF_BITS, (8,))
        bits = found[0] if isinstance(found, tuple) else int(found)
    return 255 // (2**bits - 1) if bits in (2, 4) and image.mode == "L" else 1


def _rgb(image: Image.Image) -> np.ndarray:
    if image.mode.startswith("I") or image.mode == "F":
        raise BadLabels(
            f"{_depth(image.mode)} has no colours, but the classes are told by label_colors"
        )
    if image.mode in ("CMYK", "YCbCr", "LAB", "HSV"):
        raise BadLabels(f"colours in {image.mode} are not exact; save the label image as RGB")
    # Transparency is no part of a label: only the stored colour counts.
    bands = image.convert("RGBA") if image.mode in ("P", "PA", "LA") else image
    return np.asarray(bands.convert("RGB"))


def _values(image: Image.Image, step: int, data: bytes) -> np.ndarray:
    mode = image.mode
    if mode == "1":
        return np.asarray(image).astype(np.uint8)
    if data.startswith(_PNG) and data[24] == 16 and data[25] != _PNG_GRAY:
        raise BadLabels("16 bits a channel in colour; save the class indices as gray PNG")
    if mode in ("L", "P"):
        values = np.asarray(image)
        return values if step == 1 else values // step
    if mode in ("LA", "PA"):
        return np.asarray(image.getchannel(0))
    if mode.startswith("I"):
        return np.asarray(image)
    if mode == "F":
        return _whole(np.asarray(image))
    if mode in ("RGB", "RGBA", "RGBX"):
        return _gray_in_colour(np.asarray(image))
    raise BadLabels(f"colour mode {mode} holds no class indices")


def _whole(values: np.ndarray) -> np.ndarray:
    if not np.isfinite(values).all() or (values != np.rint(values)).any():
        raise BadLabels("floating-point values that are not whole numbers")
    return values.astype(np.int64)


def _gray_in_colour(pixels: np.ndarray) -> np.ndarray:
    gray = np.ascontiguousarray(pixels[..., 0])
    if np.array_equal(gray, pixels[..., 1]) and np.array_equal(gray, pixels[..., 2]):
        return gray
    codes, counts = np.unique(_codes(pixels), return_counts=True)
    order = np.argsort(-counts, kind="stable")[:_MAX_NAMED]
    named = ", ".join(str(_unpacked(int(codes[i]))) for i in order)
    raise BadLabels(
        f"a colour picture with {len(codes):,} colours (most often {named}), but class indices are "
        "expected; if colours stand for classes, give them in the order of the classes: "
        "label_colors=[(r, g, b), …]"
    )


def _depth(mode: str) -> str:
    return "a floating-point image" if mode == "F" else "a gray image of 16 or 32 bits"
