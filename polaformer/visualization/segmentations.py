"""Class maps beside their images, the true one beside the predicted one, as one PNG file.

Drawn with PIL alone, as training waits for it. A legend names the classes that occur.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, ImageDraw

from polaformer.errors import UserError
from polaformer.visualization.detections import class_colour
from polaformer.visualization.figure import INK, SOFT, short_name
from polaformer.visualization.grid import GAP, grid_width, save_grid, text_width, write_text

PANEL = 300
"""Longer side of one panel of the picture, in pixels."""

IGNORED = 255
"""The value of pixels that do not count; they are hatched."""

LEGEND_UP_TO = 48
"""Classes named in the legend, those with the most pixels first."""

_CAPTION = 22
_SWATCH = 12
_LINE = 18
_STRIP = 1 << 20


@dataclass(frozen=True)
class SegmentedScene:
    """An image with its class maps [h, w] of any resolution; ``truth`` is None where not known.

    Args:
        image: RGB, at any resolution.
        size: width and height of the image, which decide about the shape of the panels.
        iou: mean IoU in percent of this image alone, None where there is no truth.
    """

    image: Image.Image
    size: tuple[int, int]
    predicted: np.ndarray
    truth: np.ndarray | None = None
    name: str = ""
    iou: float | None = None


def draw_segmentations(
    scenes: Sequence[SegmentedScene],
    out: str | Path,
    *,
    classes: Sequence[str] = (),
    palette: Any = None,
    title: str = "Predictions",
    columns: int = 2,
) -> Path:
    """Write a grid of images, each with its true and its predicted classes, and a legend.

    ``palette`` [classes, 3] holds RGB of 0 to 255; a class that it lacks gets a colour of its own.
    Raises UserError if ``scenes`` is empty.
    """
    if not scenes:
        raise UserError("no predictions to draw: the list is empty")
    columns = max(1, min(columns, len(scenes)))
    shares = _shares(scenes)
    colours = _colours(shares, palette)
    cells = [_cell(scene, colours) for scene in scenes]
    width = grid_width(max(cell.width for cell in cells), columns) - 2 * GAP
    legend = _legend(shares, colours, classes, width)
    return save_grid(cells, out, title, columns, legend)


def shrink_map(labels: np.ndarray, longest: int = PANEL) -> np.ndarray:
    """``labels`` [h, w] with a longer side of at most ``longest``, by its nearest pixels."""
    height, width = labels.shape
    factor = min(1.0, longest / max(height, width, 1))
    return _at_size(labels, (max(1, round(width * factor)), max(1, round(height * factor))))


def image_iou(truth: np.ndarray, predicted: np.ndarray, ignored: int = IGNORED) -> float | None:
    """Mean IoU in percent of one image, over the classes that occur in one of its maps.

    None where no pixel counts. Class numbers are 0 to 32767.
    """
    pixels: dict[tuple[int, int], int] = {}
    for start in range(0, truth.size, _STRIP):
        true, said = (part.ravel()[start : start + _STRIP] for part in (truth, predicted))
        codes = (true.astype(np.int32) << 16) + said
        values, counts = np.unique(codes[true != ignored], return_counts=True)
        for code, count in zip(values.tolist(), counts.tolist(), strict=True):
            pair = (code >> 16, code & 0xFFFF)
            pixels[pair] = pixels.get(pair, 0) + count
    return _mean_iou(pixels)


def _mean_iou(pixels: Mapping[tuple[int, int], int]) -> float | None:
    correct: dict[int, int] = {}
    either: dict[int, int] = {}
    for (true, said), count in pixels.items():
        for label in {true, said}:
            either[label] = either.get(label, 0) + count
        if true == said:
            correct[true] = count
    if not either:
        return None
    return 100.0 * sum(correct.get(label, 0) / n for label, n in either.items()) / len(either)


def _shares(scenes: Sequence[SegmentedScene]) -> dict[int, float]:
    """Class numbers of all maps, and the ignored value, by their share of the maps' pixels."""
    shares: dict[int, float] = {}
    for scene in scenes:
        for labels in (scene.truth, scene.predicted):
            if labels is None or not labels.size:
                continue
            values, counts = np.unique(labels, return_counts=True)
            for value, count in zip(values.tolist(), counts.tolist(), strict=True):
                shares[value] = shares.get(value, 0.0) + count / labels.size
    return dict(sorted(shares.items(), key=lambda entry: -entry[1]))


def _colours(labels: Mapping[int, float], palette: Any) -> dict[int, tuple[int, ...]]:
    given = [] if palette is None else np.asarray(palette, dtype=np.uint8).reshape(-1, 3).tolist()
    return {
        label: tuple(given[label]) if 0 <= label < len(given) else class_colour(label)
        for label in labels
    }


def _cell(scene: SegmentedScene, colours: Mapping[int, tuple[int, ...]]) -> Image.Image:
    """One image, its true classes where they are known, and the predicted ones."""
    factor = PANEL / max(*scene.size, 1)
    size = (max(1, round(scene.size[0] * factor)), max(1, round(scene.size[1] * factor)))
    resample = Image.Resampling.NEAREST if factor > 2 else Image.Resampling.BILINEAR
    panels = [(short_name(scene.name, 34), scene.image.convert("RGB").resize(size, resample))]
    if scene.truth is not None:
        panels.append(("true", _map_panel(scene.truth, size, colours)))
    score = "" if scene.iou is None else f", IoU of this image {scene.iou:.1f} %"
    panels.append((f"predicted{score}", _map_panel(scene.predicted, size, colours)))
    cell = Image.new("RGB", (len(panels) * (PANEL + GAP) - GAP, size[1] + _CAPTION), "white")
    draw = ImageDraw.Draw(cell)
    for place, (caption, panel) in enumerate(panels):
        x = place * (PANEL + GAP)
        write_text(draw, (x, 4), caption, 12, SOFT)
        cell.paste(panel, (x, _CAPTION))
    return cell


def _map_panel(
    labels: np.ndarray, size: tuple[int, int], colours: Mapping[int, tuple[int, ...]]
) -> Image.Image:
    """A map in the colours of its classes; what is ignored is hatched."""
    if not labels.size:
        return Image.new("RGB", size, "white")
    at_size = _at_size(labels, size)
    values, places = np.unique(at_size, return_inverse=True)
    table = np.array([colours[value] for value in values.tolist()], dtype=np.uint8)
    pixels = table[places.reshape(at_size.shape)]
    ignored = at_size == IGNORED
    if ignored.any():
        pixels[ignored] = _hatching(size)[ignored]
    return Image.fromarray(pixels)


def _hatching(size: tuple[int, int]) -> np.ndarray:
    rows, columns = np.ogrid[: size[1], : size[0]]
    lines = (rows + columns) % 7 < 2
    return np.where(lines[..., None], np.uint8(120), np.uint8(225)).repeat(3, axis=2)


def _at_size(labels: np.ndarray, size: tuple[int, int]) -> np.ndarray:
    """The nearest pixels of ``labels`` at ``size``, width and height."""
    height, width = labels.shape
    rows = ((np.arange(size[1]) + 0.5) * height / size[1]).astype(np.intp)
    columns = ((np.arange(size[0]) + 0.5) * width / size[0]).astype(np.intp)
    return labels[rows[:, None], columns]


def _legend(
    shares: Mapping[int, float],
    colours: Mapping[int, tuple[int, ...]],
    classes: Sequence[str],
    width: int,
) -> Image.Image:
    """The names of the classes beside their colours, in as many lines as they need."""
    labels = [label for label in shares if label != IGNORED]
    entries: list[tuple[str, Image.Image | None]] = [
        (
            short_name(_name(label, classes), 24),
            Image.new("RGB", (_SWATCH, _SWATCH), colours[label]),
        )
        for label in labels[:LEGEND_UP_TO]
    ]
    if len(labels) > LEGEND_UP_TO:
        entries.append((f"and {len(labels) - LEGEND_UP_TO} more", None))
    if IGNORED in shares:
        hatched = Image.fromarray(_hatching((_SWATCH, _SWATCH)))
        entries.append(("ignored", hatched))
    lines: list[list[tuple[float, str, Image.Image | None]]] = [[]]
    x = 0.0
    for name, swatch in entries:
        needed = _SWATCH + 5 + text_width(name, 12) + 16
        if x and x + needed > width:
            lines.append([])
            x = 0.0
        lines[-1].append((x, name, swatch))
        x += needed
    image = Image.new("RGB", (width, len(lines) * _LINE), "white")
    draw = ImageDraw.Draw(image)
    for row, line in enumerate(lines):
        for left, name, swatch in line:
            if swatch is not None:
                image.paste(swatch, (round(left), row * _LINE + 2))
                frame = (round(left), row * _LINE + 2, round(left) + 11, row * _LINE + 13)
                draw.rectangle(frame, outline=SOFT)
            write_text(draw, (left + _SWATCH + 5, row * _LINE + 1), name, 12, INK)
    return image


def _name(label: int, classes: Sequence[str]) -> str:
    return str(classes[label]) if 0 <= label < len(classes) else f"class {label}"
