"""Masks as COCO files write them: polygons, and run lengths that are packed or plain.

Formulas: pycocotools 2.0, ``common/maskApi.c`` (``rleFrString``) and ``mask.py``. Run lengths
count pixels column by column, beginning with those outside of the object.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

Segmentation = list | dict
_FAR = 1e6  # pixels; a coordinate beyond would take all memory when it is drawn


def normalise(raw: Any, size: tuple[int, int] | None) -> tuple[Segmentation | None, str | None]:
    """``raw`` as a list of polygons [x1, y1, x2, y2, …] or dict(size, counts), and what was odd.

    No mask at all (None, an empty list) is nothing odd; a mask that cannot be used becomes None
    with a reason. Polygons without 3 points are taken out, one polygon that is not in a list and
    points written as pairs are put in order. Run lengths must fill their size, which must be that
    of the picture, ``size`` = (height, width), where it is known.
    """
    if raw is None or raw == [] or raw == {} or raw == "":
        return None, None
    if isinstance(raw, dict):
        return _run_lengths(raw, size)
    if isinstance(raw, list):
        return (raw, None) if _all_sound(raw) else _mended(raw)
    return None, f"the mask is {type(raw).__name__}, neither polygons nor run lengths"


def run_lengths(rle: dict) -> np.ndarray:
    """The run lengths of dict(size, counts) as int64; ``counts`` is a string, bytes or numbers.

    Raises ValueError if that is not possible.
    """
    counts = rle.get("counts")
    if isinstance(counts, list):
        return _whole_numbers(counts)
    if isinstance(counts, str):
        counts = counts.encode("ascii", "replace")
    if not isinstance(counts, bytes):
        raise ValueError("counts is neither text nor a list of numbers")
    return _unpacked(counts)


def mask_area(segmentation: Segmentation) -> float:
    """Area in pixels: the number of them for run lengths, the shoelace formula for polygons."""
    if isinstance(segmentation, dict):
        return float(run_lengths(segmentation)[1::2].sum())
    return sum(_shoelace(polygon) for polygon in segmentation)


def mask_box(segmentation: Segmentation) -> list[float]:
    """The box [x, y, width, height] around a mask."""
    if isinstance(segmentation, dict):
        return _box_of_runs(segmentation)
    xs = [x for polygon in segmentation for x in polygon[0::2]]
    ys = [y for polygon in segmentation for y in polygon[1::2]]
    left, top = float(min(xs)), float(min(ys))
    return [left, top, max(xs) - left, max(ys) - top]


def covers_pixels(segmentation: Segmentation, size: tuple[int, int] | None) -> bool:
    """Whether a mask that ``normalise`` passed reaches into a picture of ``size`` = (w, h)."""
    return isinstance(segmentation, dict) or extent(segmentation, size)[0] > 0


def extent(segmentation: list, size: tuple[int, int] | None) -> tuple[float, float]:
    """Width and height of the largest polygon's part inside a picture of ``size`` = (w, h)."""
    width, height = size or (math.inf, math.inf)
    found = (0.0, 0.0)
    for polygon in segmentation:
        xs, ys = polygon[0::2], polygon[1::2]
        across = min(max(xs), width) - max(min(xs), 0)
        down = min(max(ys), height) - max(min(ys), 0)
        if across > 0 and down > 0 and across * down > found[0] * found[1]:
            found = (across, down)
    return found


def _all_sound(polygons: list) -> bool:
    try:
        return all(
            type(polygon) is list
            and len(polygon) >= 6
            and len(polygon) % 2 == 0
            and abs(sum(polygon)) < math.inf  # not so if one is NaN, which min and max pass over
            and min(polygon) > -_FAR
            and max(polygon) < _FAR
            for polygon in polygons
        )
    except (TypeError, OverflowError):  # the latter for whole numbers of hundreds of digits
        return False


def _mended(raw: list) -> tuple[list | None, str | None]:
    polygons = [_flat(polygon) for polygon in _nested(raw)]
    sound = [polygon for polygon in polygons if _all_sound([polygon])]
    if len(sound) == len(polygons):
        return sound, None
    count = len(polygons) - len(sound)
    return sound or None, f"{count} of {len(polygons)} polygons without 3 points of 2 numbers each"


def _nested(raw: list) -> list:
    """A list of polygons, also where one polygon stands alone as numbers or as points."""
    if all(_is_number(entry) for entry in raw):
        return [raw]
    points = all(isinstance(entry, list) and len(entry) == 2 for entry in raw)
    if points and all(_is_number(value) for point in raw for value in point):
        return [raw]
    return raw


def _flat(polygon: Any) -> Any:
    """[[x, y], …] as [x, y, …]."""
    if isinstance(polygon, list) and all(isinstance(p, list) and len(p) == 2 for p in polygon):
        return [value for point in polygon for value in point]
    return polygon


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _run_lengths(raw: dict, size: tuple[int, int] | None) -> tuple[dict | None, str | None]:
    try:
        height, width = _whole_numbers(raw.get("size") or []).tolist()
    except ValueError:
        return None, "the run lengths have no size [height, width]"
    if size is not None and (height, width) != size:
        told = f"the run lengths are for {width} x {height}, the picture has {size[1]} x {size[0]}"
        return None, told
    try:
        runs = run_lengths(raw)
    except ValueError as error:
        return None, f"broken run lengths: {error}"
    if (runs < 0).any() or int(runs.sum()) != height * width:
        return None, f"the run lengths do not fill {width} x {height} pixels"
    if not runs[1::2].any():
        return None, "the run lengths cover no pixel"
    counts = raw["counts"]
    if isinstance(counts, bytes):
        counts = counts.decode("ascii")
    return {
        "size": [height, width],
        "counts": runs.tolist() if isinstance(counts, list) else counts,
    }, None


def _whole_numbers(values: Sequence) -> np.ndarray:
    try:
        numbers = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError, OverflowError) as error:
        raise ValueError("not all are numbers") from error
    if numbers.ndim != 1 or not numbers.size or not (numbers == np.floor(numbers)).all():
        raise ValueError("not all are whole numbers")
    return numbers.astype(np.int64)


def _unpacked(text: bytes) -> np.ndarray:
    """The packed form: 5 bits a character from '0' on, bit 5 for 'more follows', signed.

    From the fourth number on each is the difference to the one two places before.
    """
    codes = np.frombuffer(text, dtype=np.uint8).astype(np.int64) - 48
    if not codes.size or codes.min() < 0 or codes.max() > 63:
        raise ValueError("counts holds a character that does not belong there")
    last = (codes & 32) == 0
    if not last[-1]:
        raise ValueError("counts is cut short")
    ends = np.flatnonzero(last)
    starts = np.concatenate([[0], ends[:-1] + 1])
    place = np.arange(codes.size) - np.repeat(starts, ends - starts + 1)
    if place.max() > 11:
        raise ValueError("counts holds a number beyond 64 bits")
    numbers = np.add.reduceat((codes & 31) << (5 * place), starts)
    negative = (codes[ends] & 16) != 0
    numbers[negative] -= np.int64(1) << (5 * (place[ends][negative] + 1))
    numbers[1::2] = np.cumsum(numbers[1::2])
    numbers[2::2] = np.cumsum(numbers[2::2])
    return numbers


def _shoelace(polygon: Sequence[float]) -> float:
    x, y = np.asarray(polygon[0::2], float), np.asarray(polygon[1::2], float)
    return float(abs(np.dot(x, np.roll(y, -1)) - np.dot(y, np.roll(x, -1))) / 2)


def _box_of_runs(rle: dict) -> list[float]:
    height, width = rle["size"]
    runs = run_lengths(rle)
    inside = np.repeat(np.arange(len(runs)) % 2 == 1, runs).reshape(width, height)
    columns, rows = np.flatnonzero(inside.any(axis=1)), np.flatnonzero(inside.any(axis=0))
    left, top = float(columns[0]), float(rows[0])
    return [left, top, columns[-1] + 1 - left, rows[-1] + 1 - top]
