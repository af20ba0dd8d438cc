"""Values per class as one picture, readable with two classes and with a thousand."""

from __future__ import annotations

import math
from collections.abc import Sequence
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
)
from polaformer.visualization.measures import (
    UNKNOWN,
    ClassTable,
    in_percent,
    number_text,
    short_name_of,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

BARS_UP_TO = 100
ONE_COLUMN_UP_TO = 30


def draw_classes(table: ClassTable, out: str | Path, *, title: str = "Classes") -> Path:
    """Write a bar for the main value of every class, the lowest first; a dashed line is the mean.

    Above 100 classes the 100 lowest are shown. Raises UserError if there is no value to draw.
    """
    place = table.main
    if place is None or not table.rows:
        raise UserError("there are no values per class")
    key = table.columns[place]
    rows = [(name, _finite(values[place])) for name, values in table.worst_first()]
    known = [value for _, value in rows if value is not None]
    shown = rows[:BARS_UP_TO]
    columns = 1 if len(shown) <= ONE_COLUMN_UP_TO else 2 if len(shown) <= 60 else 3
    each = -(-len(shown) // columns)
    figure = new_figure(4.4 * columns + 0.4, max(1.9, 0.19 * each + 1.15))
    if len(shown) < len(rows):
        title += f": the {len(shown)} lowest of {len(rows)} classes"
    set_title(figure, title)
    height = figure.get_figheight()
    figure.set_layout_engine("constrained", rect=(0.01, 0.01, 0.98, 1 - 0.5 / height))
    top = 100.0 if in_percent(key) else max(1.0, *known) if known else 1.0
    mean = sum(known) / len(known) if known else None
    for column in range(columns):
        axes = figure.add_subplot(1, columns, column + 1)
        part = shown[column * each : (column + 1) * each]
        _bars(axes, part, key, top, mean, each)
    return save_figure(figure, out)


def _bars(
    axes: Axes,
    rows: Sequence[tuple[str, float | None]],
    key: str,
    top: float,
    mean: float | None,
    places: int,
) -> None:
    axes.barh(range(len(rows)), [value or 0.0 for _, value in rows], color=RIGHT, height=0.7)
    axes.set_yticks(range(len(rows)), [short_name(name, 22) for name, _ in rows], fontsize=8)
    axes.set_ylim(places - 0.5, -0.5)
    axes.set_xlim(0, 1.16 * top)
    axes.set_xlabel(f"{short_name_of(key)}{' (%)' if in_percent(key) else ''}")
    for row, (_, value) in enumerate(rows):
        text = UNKNOWN if value is None else number_text(key, value)[:5]
        axes.text((value or 0.0) + 0.01 * top, row, text, va="center", fontsize=7, color=SOFT)
    if mean is not None:
        axes.axvline(mean, color=WRONG, linestyle="--", linewidth=1.2, zorder=0)


def _finite(value: Any) -> float | None:
    known = isinstance(value, (int, float)) and math.isfinite(value)
    return float(value) if known else None
