"""Whole images with what was predicted and what is true, as a PNG file.

Colours are the blue and vermilion of Okabe and Ito, which colour-blind readers can tell apart; what
is wrong also carries a sign. Every file is written beside its place and then moved there, so a
picture is either old or new, never half. matplotlib is imported when the first picture is drawn.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from PIL import Image

from polaformer.errors import UserError
from polaformer.visualization.figure import (
    INK,
    RIGHT,
    SOFT,
    WRONG,
    new_figure,
    save_figure,
    set_title,
    short_name,
)
from polaformer.visualization.results import finite

if TYPE_CHECKING:
    from matplotlib.axes import Axes


@dataclass(frozen=True)
class Prediction:
    """One image with what the model said; ``label`` is None where the truth is unknown."""

    image: Image.Image
    prediction: str
    label: str | None = None
    score: float | None = None

    @property
    def correct(self) -> bool | None:
        """Whether the prediction is the label; None without a label."""
        return None if self.label is None else self.prediction == self.label


def draw_predictions(
    items: Sequence[Prediction], out: str | Path, *, title: str = "Predictions", columns: int = 8
) -> Path:
    """Write a grid of images, each with its prediction; wrong ones have a thick frame and a cross.

    Raises UserError if ``items`` is empty.
    """
    if not items:
        raise UserError("no predictions to draw: the list is empty")
    columns = max(1, min(columns, len(items)))
    rows = math.ceil(len(items) / columns)
    captions = [_caption(item) for item in items]
    longest = max(len(line) for text in captions for line in text.split("\n"))
    width = min(2.4, max(1.25, 0.085 * longest))
    height = width * _usual_aspect([item.image for item in items])
    caption = 0.2 + 0.16 * max(text.count("\n") + 1 for text in captions)
    top = 0.62
    figure = new_figure((width + 0.12) * columns + 0.2, (height + caption) * rows + top + 0.1)
    set_title(figure, title)
    figure.text(
        0.15 / figure.get_figwidth(), 1 - 0.42 / figure.get_figheight(), _legend_line(items),
        fontsize=8.5, color=SOFT, va="top",
    )  # fmt: skip
    for place, item in enumerate(items):
        row, column = divmod(place, columns)
        left = 0.15 + column * (width + 0.12)
        lower = 0.1 + (rows - 1 - row) * (height + caption)
        axes = figure.add_axes(
            (
                left / figure.get_figwidth(),
                lower / figure.get_figheight(),
                width / figure.get_figwidth(),
                height / figure.get_figheight(),
            )
        )
        _draw_cell(axes, item)
    return save_figure(figure, out)


def _draw_cell(axes: Axes, item: Prediction) -> None:
    axes.imshow(
        np.asarray(item.image.convert("RGB")),
        interpolation="nearest" if max(item.image.size) <= 64 else "antialiased",
    )
    axes.set_xticks([])
    axes.set_yticks([])
    colour = {True: RIGHT, False: WRONG, None: INK}[item.correct]
    for spine in axes.spines.values():
        spine.set_edgecolor(colour)
        spine.set_linewidth(4.0 if item.correct is False else 1.4)
    weight = "bold" if item.correct is False else "normal"
    axes.set_title(_caption(item), fontsize=9, color=colour, pad=5, weight=weight)


def _caption(item: Prediction) -> str:
    score = "" if finite(item.score) is None else f" ({100 * float(item.score or 0):.0f} %)"
    said = short_name(item.prediction)
    if item.correct is False:
        return f"✗ said {said}{score}\ntrue {short_name(str(item.label))}"
    return f"{'✓ ' if item.correct else ''}{said}{score}"


def _legend_line(items: Sequence[Prediction]) -> str:
    signs = []
    if any(item.correct for item in items):
        signs.append("✓ right")
    if any(item.correct is False for item in items):
        signs.append("✗ wrong, with a thick frame")
    if any(finite(item.score) is not None for item in items):
        signs.append("in brackets: the model's confidence")
    return "    ".join(signs)


def _usual_aspect(images: Sequence[Image.Image]) -> float:
    ratios = sorted(image.height / image.width for image in images)
    return min(1.5, max(0.5, ratios[len(ratios) // 2]))
