"""Confusion matrix as a PNG file, readable with ten classes and with a thousand."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

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

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

FULL_MATRIX_UP_TO = 25
HEAT_MAP_UP_TO = 200


def draw_confusion(
    matrix: Sequence[Sequence[float]],
    classes: Sequence[str],
    out: str | Path,
    *,
    title: str = "Confusion matrix",
    unit: str = "images",
) -> Path:
    """Write which class was taken for which; ``matrix[true][predicted]`` counts ``unit``.

    Up to 25 classes every count is printed (of pixels the share of the true class in percent), up
    to 200 the matrix is a heat map beside its worst pairs, above that only the worst pairs and the
    spread of the per-class accuracy are shown. Raises UserError if ``matrix`` is not square or does
    not fit ``classes``.
    """
    counts = _square(matrix)
    names = [str(name) for name in classes] or [str(i) for i in range(len(counts))]
    if len(names) != len(counts):
        raise UserError(
            f"confusion matrix of {len(counts)} classes, but {len(names)} class names were given"
        )
    if len(counts) <= FULL_MATRIX_UP_TO:
        figure = _full_matrix(counts, names, unit)
    elif len(counts) <= HEAT_MAP_UP_TO:
        figure = _heat_map_and_pairs(counts, names, unit)
    else:
        figure = _spread_and_pairs(counts, names, unit)
    set_title(figure, title)
    return save_figure(figure, out)


def top_confusions(
    matrix: Sequence[Sequence[float]], limit: int = 20
) -> list[tuple[int, int, int, float]]:
    """The most frequent mistakes: (true class, predicted class, count, share of its class)."""
    counts = _square(matrix)
    totals = counts.sum(axis=1)
    wrong = counts.copy()
    np.fill_diagonal(wrong, 0)
    order = np.argsort(-wrong, axis=None, kind="stable")[:limit]
    pairs = [divmod(int(flat), len(counts)) for flat in order]
    return [
        (true, said, int(wrong[true, said]), float(wrong[true, said] / totals[true]))
        for true, said in pairs
        if wrong[true, said] > 0
    ]


def _full_matrix(counts: np.ndarray, names: Sequence[str], unit: str) -> Figure:
    size = len(counts)
    label_inches = 0.075 * min(18, max(len(name) for name in names)) + 0.25
    side = max(3.2, 0.46 * size)
    figure = new_figure(side + label_inches + 0.95, side + label_inches + 1.0)
    axes = figure.add_axes(
        (
            (label_inches + 0.45) / figure.get_figwidth(),
            (label_inches + 0.4) / figure.get_figheight(),
            side / figure.get_figwidth(),
            side / figure.get_figheight(),
        )
    )
    _heat(axes, counts, unit)
    short = [short_name(name) for name in names]
    upright = max(len(name) for name in short) <= 3
    axes.set_xticks(range(size), short, rotation=0 if upright else 90, fontsize=9)
    axes.set_yticks(range(size), short, fontsize=9)
    share = _share(counts)
    digits = len(str(int(counts.max()))) if unit == "images" else 3
    font = min(9.0, 26.0 / digits) if size <= 15 else min(8.0, 22.0 / digits)
    for true in range(size):
        for said in range(size):
            if counts[true, said]:
                text = _cell_text(counts[true, said], share[true, said], unit)
                mistake = true != said and text != "<1"
                plain = INK if true == said else SOFT
                colour = "white" if share[true, said] > 0.55 else WRONG if mistake else plain
                axes.text(
                    said, true, text, ha="center", va="center",
                    fontsize=font, color=colour, weight="bold" if mistake else "normal",
                )  # fmt: skip
    return figure


def _cell_text(count: float, share: float, unit: str) -> str:
    """The number of images, or the share of pixels in percent, which is 0 or 100 only if it is."""
    if unit == "images":
        return f"{count:.0f}"
    if share < 0.005:
        return "<1"
    return ">99" if 0.995 <= share < 1 else f"{100 * share:.0f}"


def _heat_map_and_pairs(counts: np.ndarray, names: Sequence[str], unit: str) -> Figure:
    side = max(4.8, 0.052 * len(names))  # six pixels a class, at least
    width, height = side + 7.2, side + 1.8
    figure = new_figure(width, height)
    axes = figure.add_axes((1.26 / width, 1.12 / height, side / width, side / height))
    _heat(axes, counts, unit, lift=True)
    step = max(1, math.ceil(len(names) / (6.2 * side)))
    ticks = range(0, len(names), step)
    short = [short_name(names[i]) for i in ticks]
    axes.set_xticks(ticks, short, rotation=90, fontsize=7)
    axes.set_yticks(ticks, short, fontsize=7)
    bars = height - 1.6
    place = (1 - 3.36 / width, 0.68 / height, 3.12 / width, bars / height)
    _pair_bars(figure.add_axes(place), counts, names, unit, limit=int(4 * bars))
    return figure


def _spread_and_pairs(counts: np.ndarray, names: Sequence[str], unit: str) -> Figure:
    figure = new_figure(12.0, 6.0)
    axes = figure.add_axes((0.065, 0.11, 0.36, 0.74))
    seen = counts.sum(axis=1) > 0
    accuracy = 100 * np.diag(_share(counts))[seen]
    axes.hist(accuracy, bins=list(range(0, 101, 5)), color=RIGHT, edgecolor="white")
    axes.set_title(f"Accuracy per class ({int(seen.sum())} classes)", loc="left", fontsize=10)
    axes.set_xlabel("accuracy of the class (%)")
    axes.set_ylabel("classes")
    axes.set_xlim(0, 100)
    if accuracy.size:
        median = float(np.median(accuracy))
        axes.axvline(
            median, color=WRONG, linestyle="--", linewidth=1.4, label=f"median {median:.1f} %"
        )
        axes.legend(frameon=False, fontsize=9, loc="upper left")
    _pair_bars(figure.add_axes((0.72, 0.11, 0.26, 0.74)), counts, names, unit)
    return figure


def _pair_bars(
    axes: Axes, counts: np.ndarray, names: Sequence[str], unit: str, limit: int = 20
) -> None:
    pairs = top_confusions(counts.tolist(), limit)
    axes.set_title("Most frequent mistakes", loc="left", fontsize=10)
    if not pairs:
        axes.set_axis_off()
        axes.text(0.0, 0.95, "none", color=SOFT, transform=axes.transAxes, va="top")
        return
    labels = [f"{short_name(names[t], 20)} → {short_name(names[s], 20)}" for t, s, _, _ in pairs]
    axes.barh(range(len(pairs)), [n for _, _, n, _ in pairs], color=WRONG, height=0.7)
    axes.set_yticks(range(len(pairs)), labels, fontsize=8)
    axes.invert_yaxis()
    axes.set_xlabel(f"{unit} (true → predicted)")
    axes.locator_params(axis="x", integer=True, nbins=5)
    if unit != "images":
        axes.xaxis.set_major_formatter(lambda value, _: _short_count(value))
    top = max(n for _, _, n, _ in pairs)
    for row, (_, _, n, share) in enumerate(pairs):
        axes.text(n + 0.02 * top, row, f"{100 * share:.0f} %", va="center", fontsize=7, color=SOFT)
    axes.set_xlim(0, 1.18 * top)


def _short_count(value: float) -> str:
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= size:
            return f"{value / size:.3g} {letter}"
    return f"{value:.0f}"


def _heat(axes: Axes, counts: np.ndarray, unit: str, *, lift: bool = False) -> None:
    share = _share(counts)
    axes.imshow(np.sqrt(share) if lift else share, cmap="Blues", vmin=0, vmax=1, aspect="equal")
    axes.set_xlabel("predicted class")
    root = "square root of the " if lift else ""
    printed = "" if lift or unit == "images" else ", in percent"
    axes.set_ylabel(f"true class (colour: {root}share of its {unit}{printed})")


def _share(counts: np.ndarray) -> np.ndarray:
    return counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)


def _square(matrix: Sequence[Sequence[float]]) -> np.ndarray:
    try:
        counts = np.asarray(matrix, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise UserError(f"confusion matrix is not a table of numbers: {error}") from error
    if counts.ndim != 2 or counts.shape[0] != counts.shape[1] or not counts.size:
        raise UserError(f"confusion matrix must be square, not of shape {counts.shape}")
    if not np.isfinite(counts).all() or (counts < 0).any():
        raise UserError("confusion matrix must hold counts: zero or more in every cell")
    return counts
