"""Boxes and masks on images, true ones beside predicted ones, as one PNG file.

Drawn with PIL alone, as training waits for it. Every class has a colour of its own, and its name
stands at each box, so nothing hangs on telling colours apart.
"""

from __future__ import annotations

import colorsys
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, ImageDraw

from polaformer.coco.masks import run_lengths
from polaformer.errors import UserError
from polaformer.visualization.figure import SOFT, short_name
from polaformer.visualization.grid import GAP, save_grid, text_width, write_text

PANEL = 380
"""Longer side of one image in the picture, in pixels."""

MAX_OBJECTS = 50
"""Objects drawn on one image; of more, the best scores or the largest."""

LABELS_FOR_ALL = 12
"""Up to so many objects every one has its name; above it names that would cover others go."""

_CAPTION = 22

Colour = tuple[int, int, int]
Rectangle = tuple[float, float, float, float]


@dataclass(frozen=True)
class Thing:
    """One object on an image.

    Args:
        box: x1, y1, x2, y2 in pixels of the image.
        label: number of its class, which decides about the colour.
        name: of its class.
        score: 0 to 1; None for what is true.
        mask: bool [h, w] over the whole image, at any resolution.
        crowd: stands for many objects, or is one that is not counted.
    """

    box: Rectangle
    label: int
    name: str
    score: float | None = None
    mask: np.ndarray | None = None
    crowd: bool = False


@dataclass(frozen=True)
class Scene:
    """An image with what is on it; ``truth`` is None where that is not known.

    Args:
        image: RGB, at any resolution.
        size: width and height that boxes refer to.
        note: of the predictions, such as how many were left out.
    """

    image: Image.Image
    size: tuple[int, int]
    predicted: Sequence[Thing] = ()
    truth: Sequence[Thing] | None = None
    name: str = ""
    note: str = ""


def draw_detections(
    scenes: Sequence[Scene], out: str | Path, *, title: str = "Predictions", columns: int = 2
) -> Path:
    """Write a grid of images, each twice: with its true objects and with the predicted ones.

    Raises UserError if ``scenes`` is empty.
    """
    if not scenes:
        raise UserError("no predictions to draw: the list is empty")
    columns = max(1, min(columns, len(scenes)))
    cells = [_cell(scene) for scene in scenes]
    return save_grid(cells, out, title, columns)


def class_colour(label: int) -> Colour:
    """A colour for class number ``label``; neighbours differ much, and no two classes agree."""
    hue = (0.57 + label * 0.6180339887) % 1.0
    saturation, value = ((0.80, 0.86), (0.95, 0.66), (0.60, 0.95))[label % 3]
    red, green, blue = colorsys.hsv_to_rgb(hue, saturation, value)
    return round(255 * red), round(255 * green), round(255 * blue)


def mask_of(segmentation: Any, size: tuple[int, int], longest: int = PANEL) -> np.ndarray | None:
    """A COCO segmentation as bool [h, w] with a longer side of at most ``longest``.

    ``segmentation`` is a list of polygons [x1, y1, x2, y2, …], or a run-length dict, in pixels of
    an image of ``size`` (width, height). None for what is neither.
    """
    scale = min(1.0, longest / max(size))
    if isinstance(segmentation, Mapping):
        full = _from_runs(segmentation)
        return None if full is None else shrink(full, longest)
    if not isinstance(segmentation, Sequence) or isinstance(segmentation, str):
        return None
    canvas = Image.new("1", (max(1, round(size[0] * scale)), max(1, round(size[1] * scale))))
    draw = ImageDraw.Draw(canvas)
    for polygon in segmentation:
        points = np.asarray(polygon, dtype=np.float64).ravel() * scale
        if points.size >= 6 and points.size % 2 == 0 and np.isfinite(points).all():
            draw.polygon([tuple(point) for point in points.reshape(-1, 2)], fill=1)
    return np.asarray(canvas, dtype=bool)


def shrink(mask: Any, longest: int = PANEL) -> Any:
    """Every n-th row and column of ``mask`` [..., h, w], so that its longer side fits."""
    step = max(1, math.ceil(max(mask.shape[-2:]) / longest))
    return mask[..., ::step, ::step]


def _from_runs(segmentation: Mapping[str, Any]) -> np.ndarray | None:
    """A run-length mask at its full size; None if the runs do not fill it."""
    try:
        height, width = (int(side) for side in segmentation["size"])
        runs = run_lengths(dict(segmentation))
    except (KeyError, TypeError, ValueError):
        return None
    if (runs < 0).any() or runs.sum() != height * width:
        return None
    values = np.repeat(np.arange(len(runs)) % 2 == 1, runs)
    return values.reshape(width, height).T


def _cell(scene: Scene) -> Image.Image:
    """One image: the true objects at the left, the predicted ones at the right."""
    factor = PANEL / max(scene.size)
    size = (max(1, round(scene.size[0] * factor)), max(1, round(scene.size[1] * factor)))
    enlarged = factor > 2
    image = scene.image.convert("RGB").resize(
        size, Image.Resampling.NEAREST if enlarged else Image.Resampling.BILINEAR
    )
    sides = [(_predicted_caption(scene), scene.predicted)]
    if scene.truth is not None:
        sides.insert(0, (_count_text("true", len(scene.truth)), scene.truth))
    cell = Image.new("RGB", (len(sides) * (PANEL + GAP) - GAP, size[1] + _CAPTION), "white")
    draw = ImageDraw.Draw(cell)
    for place, (caption, things) in enumerate(sides):
        x = place * (PANEL + GAP)
        first = f"{short_name(scene.name, 28)} · " if place == 0 and scene.name else ""
        write_text(draw, (x, 4), f"{first}{caption}", 12, SOFT)
        cell.paste(_panel(image, things, factor), (x, _CAPTION))
    return cell


def _count_text(kind: str, count: int) -> str:
    return f"{kind}: {count} object{'' if count == 1 else 's'}"


def _predicted_caption(scene: Scene) -> str:
    return f"{_count_text('predicted', len(scene.predicted))}{scene.note and f', {scene.note}'}"


def _panel(image: Image.Image, things: Sequence[Thing], factor: float) -> Image.Image:
    shown = sorted(things, key=_importance, reverse=True)[:MAX_OBJECTS]
    panel = _with_masks(image, shown)
    draw = ImageDraw.Draw(panel)
    for thing in reversed(shown):
        _draw_box(draw, _scaled_box(thing.box, factor, panel.size), thing)
    taken: list[Rectangle] = []
    for thing in shown:
        _draw_label(draw, thing, factor, panel.size, taken, len(shown) <= LABELS_FOR_ALL)
    return panel


def _importance(thing: Thing) -> tuple[float, float]:
    x1, y1, x2, y2 = thing.box
    return (1.0 if thing.score is None else thing.score, abs((x2 - x1) * (y2 - y1)))


def _with_masks(image: Image.Image, things: Sequence[Thing]) -> Image.Image:
    pixels = np.asarray(image, dtype=np.float32)
    changed = False
    for thing in reversed(things):
        if thing.mask is None or not thing.mask.size:
            continue
        mask = Image.fromarray(np.ascontiguousarray(thing.mask, dtype=np.uint8) * 255)
        inside = np.asarray(mask.resize(image.size, Image.Resampling.NEAREST)) > 127
        if not changed:
            pixels, changed = pixels.copy(), True
        pixels[inside] += 0.45 * (
            np.asarray(class_colour(thing.label), np.float32) - pixels[inside]
        )
    return Image.fromarray(pixels.astype(np.uint8)) if changed else image.copy()


def _scaled_box(box: Rectangle, factor: float, size: tuple[int, int]) -> Rectangle | None:
    """The box in pixels of the panel and inside it; None for one that is not finite."""
    if not all(math.isfinite(value) for value in box):
        return None
    x1, x2 = sorted(min(max(x * factor, 0.0), size[0] - 1.0) for x in (box[0], box[2]))
    y1, y2 = sorted(min(max(y * factor, 0.0), size[1] - 1.0) for y in (box[1], box[3]))
    return x1, y1, x2, y2


def _draw_box(draw: ImageDraw.ImageDraw, box: Rectangle | None, thing: Thing) -> None:
    if box is not None:
        draw.rectangle(box, outline=class_colour(thing.label), width=1 if thing.crowd else 2)


def _draw_label(
    draw: ImageDraw.ImageDraw,
    thing: Thing,
    factor: float,
    size: tuple[int, int],
    taken: list[Rectangle],
    always: bool,
) -> None:
    """The name at the first free place: above the box, inside it at the top, below it."""
    box = _scaled_box(thing.box, factor, size)
    if box is None:
        return
    score = "" if thing.score is None else f" {thing.score:.2f}"
    text = f"{short_name(thing.name)}{' (crowd)' if thing.crowd else ''}{score}"
    width, height = text_width(text, 11) + 4, 15
    x = min(max(0.0, box[0]), max(0.0, size[0] - width))
    places = [
        (x, y, x + width, y + height)
        for y in (box[1] - height, box[1], box[3])
        if 0 <= y <= size[1] - height
    ] or [(x, 0.0, x + width, float(height))]
    free = [place for place in places if not any(_meet(place, other) for other in taken)]
    if not free and not always:
        return
    place = (free or places)[0]
    taken.append(place)
    colour = class_colour(thing.label)
    draw.rectangle(place, fill=colour)
    light = 0.299 * colour[0] + 0.587 * colour[1] + 0.114 * colour[2] > 140
    write_text(draw, (place[0] + 2, place[1] + 1), text, 11, "black" if light else "white")


def _meet(one: Rectangle, other: Rectangle) -> bool:
    return one[0] < other[2] and other[0] < one[2] and one[1] < other[3] and other[1] < one[3]
