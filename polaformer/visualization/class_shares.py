"""How many of the pixels each class has, as one picture that is readable with 150 classes."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from polaformer.errors import UserError
from polaformer.visualization.figure import (
    RIGHT,
    SOFT,
    WRONG,
    new_figure,
    save_figure,
    set_title,
    short_name,
    write_whole,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_ROWS_PER_COLUMN = 58
_MOST_COLUMNS = 6
_LEAST = 1e-6


def draw_shares(
    shares: Mapping[str, Sequence[float]],
    classes: Sequence[str],
    out: str | Path,
    *,
    title: str = "Pixels per class",
) -> Path:
    """Write a bar for the share (in percent) of every class, the largest first, on a log axis.

    ``shares`` has a sequence as long as ``classes`` for each split. The first split is the bar, the
    second a mark on it. A class without a pixel has a cross and says in which split. Raises
    UserError if there is nothing to draw.
    """
    if not classes or not shares or any(len(part) != len(classes) for part in shares.values()):
        raise UserError("there are no shares of classes to draw")
    splits = list(shares)[:2]
    order = sorted(range(len(classes)), key=lambda i: -shares[splits[0]][i])
    columns = min(_MOST_COLUMNS, -(-len(order) // _ROWS_PER_COLUMN))
    each = -(-len(order) // columns)
    height = max(2.1, 0.17 * each + 1.35)
    figure = new_figure(4.3 * columns + 0.5, height)
    set_title(figure, title)
    figure.text(
        0.15 / figure.get_figwidth(), 1 - 0.4 / height, _legend(splits), fontsize=9, color=SOFT,
        va="top",
    )  # fmt: skip
    figure.set_layout_engine("constrained", rect=(0.01, 0.01, 0.98, 1 - 0.68 / height))
    low = _lower_end([value for name in splits for value in shares[name]])
    for column in range(columns):
        part = order[column * each : (column + 1) * each]
        axes = figure.add_subplot(1, columns, column + 1)
        _bars(axes, [classes[i] for i in part], low, each)
        _fill(axes, {name: [shares[name][i] for i in part] for name in splits}, low)
    return save_figure(figure, out)


def write_shares(
    rows: Sequence[Mapping[str, Any]],
    shares: Mapping[str, Sequence[float]],
    folder: str | Path,
    *,
    title: str = "Pixels per class",
) -> list[Path]:
    """Write classes.csv, classes.json and classes.png into ``folder``; returns their paths.

    ``rows`` has a record for each class, with 'class' and 'weight', all with the same keys;
    ``shares`` as for ``draw_shares``. Raises UserError if there is nothing to write.
    """
    if not rows:
        raise UserError("there are no classes to write")
    place = Path(folder)
    text = io.StringIO(newline="")
    table = csv.DictWriter(text, list(rows[0]))
    table.writeheader()
    table.writerows(rows)
    document = {"class_weight": [row["weight"] for row in rows], "classes": list(rows)}
    encoded = {
        "classes.csv": text.getvalue(),
        "classes.json": json.dumps(document, ensure_ascii=False, indent=1) + "\n",
    }
    paths = [_write_text(place / name, content) for name, content in encoded.items()]
    names = [str(row["class"]) for row in rows]
    return [*paths, draw_shares(shares, names, place / "classes.png", title=title)]


def _write_text(out: Path, text: str) -> Path:
    return write_whole(out, lambda file: file.write(text.encode()))


def _legend(splits: Sequence[str]) -> str:
    parts = [f"bar: {splits[0]}", *(f"mark: {name}" for name in splits[1:]), "×: no pixel in"]
    return ",  ".join(parts)


def _lower_end(values: Sequence[float]) -> float:
    """A power of ten below the least share that is not zero."""
    least = min((value for value in values if value > 0), default=1.0)
    return 10.0 ** math.floor(math.log10(max(least, _LEAST)) - 0.1)


def _bars(axes: Axes, names: Sequence[str], low: float, places: int) -> None:
    axes.set_xscale("log")
    axes.set_xlim(low, 200.0)
    axes.set_ylim(places - 0.5, -0.5)
    axes.set_yticks(range(len(names)), [short_name(name, 24) for name in names], fontsize=7.5)
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="x", which="major", color="#DDDDDD", linewidth=0.6)
    axes.set_axisbelow(True)
    axes.set_xlabel("share of the labelled pixels (%)", fontsize=8.5)
    ticks = [10.0**power for power in range(round(math.log10(low)), 3)]
    axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks], fontsize=8)
    axes.minorticks_off()


def _fill(axes: Axes, shares: Mapping[str, Sequence[float]], low: float) -> None:
    first, *others = shares
    values = shares[first]
    axes.barh(
        range(len(values)), [max(value - low, 0.0) for value in values],
        left=low, color=RIGHT, height=0.66,
    )  # fmt: skip
    for name in others:
        rows = [row for row, value in enumerate(shares[name]) if value > 0]
        places = [shares[name][row] for row in rows]
        for colour, size, width in (("white", 10, 3.6), (WRONG, 8, 1.8)):
            axes.plot(
                places, rows, linestyle="", marker="|", color=colour, markersize=size,
                markeredgewidth=width,
            )  # fmt: skip
    for row in range(len(values)):
        absent = [name for name in shares if not shares[name][row] > 0]
        if absent:
            place = max(low, *(shares[name][row] for name in shares))
            axes.text(
                place * 1.25, row, f"× {' and '.join(absent)}", va="center", fontsize=7, color=WRONG
            )
