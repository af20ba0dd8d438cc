"""Training curves as a PNG file: losses, measures of the validations, learning rate."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from polaformer.errors import UserError
from polaformer.visualization.figure import RIGHT, SOFT, WRONG, new_figure, save_figure, set_title
from polaformer.visualization.measures import (
    families,
    in_percent,
    is_loss,
    mean_over,
    measures_of,
    number_text,
    of_pixels,
    of_whole_images,
    short_name_of,
)
from polaformer.visualization.results import (
    Series,
    split_scalars,
    train_series,
    unit_of,
    val_series,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

LINES = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#000000")
"""Colours of the curves of one panel, after Okabe and Ito; what is wrong has one of its own."""

MEASURE_PANELS = 3


def draw_curves(
    records: Sequence[Mapping[str, Any]], out: str | Path, *, title: str = "Training"
) -> Path:
    """Write the curves in the lines of a scalars file, each kind in its own panel.

    They run over epochs, or over iterations where the run has no epochs.

    Panels are the loss, its parts where there are several, the measures of the validation, and the
    learning rate. Steps whose loss was not finite are marked. Raises UserError if there is nothing
    to draw.
    """
    train, val = split_scalars(records)
    unit = unit_of(records)
    panels = _panels(train, val, unit)
    curves = [curve for panel in panels for curve in panel.curves.values()]
    if not curves:
        raise UserError("no curves to draw: the scalars hold no loss, learning rate or measure")
    columns = 2 if len(panels) == 4 else min(3, len(panels))
    rows = -(-len(panels) // columns)
    height = 3.5 if rows == 1 else 0.4 + 3.1 * rows
    figure = new_figure(10.8, height)
    set_title(figure, title)
    # Room for tick labels of any length; the title's strip stays free.
    free = 1 - 0.455 / height
    figure.set_layout_engine("constrained", rect=(0.008, 0.02, 0.984, free - 0.02), wspace=0.05)
    last = max(curve.x[-1] for curve in curves)
    for place, panel in enumerate(panels):
        axes = figure.add_subplot(rows, columns, place + 1)
        panel.draw(axes, panel)
        axes.set_xlim(0, max(1.03 * last, 1e-9))  # room for the last marker
        axes.locator_params(axis="x", integer=True)
        axes.set_xlabel(unit)
    return save_figure(figure, out)


@dataclass(frozen=True)
class Panel:
    """One diagram: its curves by their names, how they are drawn, and what the run counts."""

    title: str
    draw: Callable[[Axes, Panel], None]
    curves: dict[str, Series]
    unit: str = "epoch"


def _panels(
    train: Sequence[Mapping[str, Any]], val: Sequence[Mapping[str, Any]], unit: str
) -> list[Panel]:
    losses = {
        "training": train_series(train, "loss"),
        "validation": val_series(val, "loss"),
    }
    panels = [Panel("Loss", _draw_losses, _known(losses))]
    names = dict.fromkeys(key for record in train for key in record if key != "loss")
    parts = _known({key: train_series(train, key) for key in names if is_loss(key)})
    if len(parts) > 1:
        panels.append(Panel("Parts of the training loss", _draw_parts, parts))
    groups = families(measures_of(val))
    shown = [base for place, base in enumerate(groups) if place == 0 or groups[base]]
    for base in shown[:MEASURE_PANELS]:
        keys = [base, *groups[base]]
        if of_pixels(base):
            keys = [base, *(key for key in groups if of_pixels(key) and key != base)]
        found = _known({key: val_series(val, key) for key in keys})
        panels.append(Panel(base, _draw_measures, found, unit))
    if not shown:
        panels.append(Panel("", _draw_measures, {}))
    rate = train_series(train, "base_lr") or train_series(train, "lr")
    panels.append(Panel("Learning rate", _draw_rate, _known({"rate": rate})))
    return panels


def _known(curves: Mapping[str, Series | None]) -> dict[str, Series]:
    return {name: curve for name, curve in curves.items() if curve is not None}


def _draw_losses(axes: Axes, panel: Panel) -> None:
    axes.set_title(panel.title, loc="left", fontsize=10)
    axes.set_ylabel("loss")
    train, val = panel.curves.get("training"), panel.curves.get("validation")
    if train is not None:
        axes.plot(
            train.x, train.y, color=RIGHT, linewidth=1.5, label="training", marker=_dot(train)
        )
    if val is not None:
        axes.plot(
            val.x, val.y, color=WRONG, linewidth=1.5, linestyle="--", marker="o", markersize=3,
            label="validation",
        )  # fmt: skip
    if train is not None:
        _mark_non_finite(axes, train)
    _log_scale_if_wide(axes, panel)
    if panel.curves:
        axes.legend(frameon=False, fontsize=8)
    else:
        _say_nothing_logged(axes)


def _draw_parts(axes: Axes, panel: Panel) -> None:
    axes.set_title(panel.title, loc="left", fontsize=10)
    axes.set_ylabel("loss")
    for place, (name, curve) in enumerate(panel.curves.items()):
        axes.plot(curve.x, curve.y, linewidth=1.2, label=name, marker=_dot(curve), **_style(place))
    _log_scale_if_wide(axes, panel)
    many = len(panel.curves) > 6
    axes.legend(frameon=False, fontsize=6 if many else 8, ncols=2 if many else 1)


def _style(place: int) -> dict[str, Any]:
    """A colour and kind of line for curve number ``place`` of a panel."""
    dashes = ("-", "--", ":", "-.")[place // len(LINES) % 4]
    return {"color": LINES[place % len(LINES)], "linestyle": dashes}


def _log_scale_if_wide(axes: Axes, panel: Panel) -> None:
    values = [y for curve in panel.curves.values() for y in curve.y if y > 0]
    if values and max(values) > 200 * min(values):
        axes.set_yscale("log")


def _mark_non_finite(axes: Axes, curve: Series) -> None:
    bad = [x for x, y in zip(curve.x, curve.y, strict=True) if math.isnan(y)]
    if bad:
        axes.plot(
            bad, [0.03] * len(bad), "x", color=WRONG, transform=axes.get_xaxis_transform(),
            label=f"not finite ({len(bad)})",
        )  # fmt: skip


def _draw_measures(axes: Axes, panel: Panel) -> None:
    """A measure with its best value marked, and those of its family below it."""
    base = panel.title
    name = short_name_of(base) + (" accuracy" if of_whole_images(base) else "")
    name = (name if of_pixels(base) else f"{name[:1].upper()}{name[1:]}") if base else "Measures"
    axes.set_title(f"{name} (validation)", loc="left", fontsize=10)
    several = of_pixels(base) and len(panel.curves) > 1
    axes.set_ylabel(
        "%" if several else f"{short_name_of(base)}{' (%)' if in_percent(base) else ''}"
    )
    values = [y for curve in panel.curves.values() for y in curve.y if not math.isnan(y)]
    main = panel.curves.get(base)
    if main is None:
        _say_nothing_logged(axes)
        return
    others = list(panel.curves.items())[1:]
    name = mean_over(base) or short_name_of(base)
    axes.plot(
        main.x, main.y, color=RIGHT, linewidth=1.8, marker="o", markersize=3, zorder=2.5,
        label=name if others else None,
    )  # fmt: skip
    for place, (key, curve) in enumerate(others, start=1):
        label = short_name_of(key).removeprefix(f"{short_name_of(base)} ")
        axes.plot(curve.x, curve.y, linewidth=1.1, marker=_dot(curve), label=label, **_style(place))
    points = [(y, x) for x, y in zip(main.x, main.y, strict=True) if not math.isnan(y)]
    if not points:
        return
    best = max(points, key=lambda point: point[0])  # the first of equals, as the best checkpoint
    named = f"best {_with_percent(base, best[0])}, {panel.unit} {best[1]:.10g}"
    low, high = min(values), max(values)
    margin = max(0.8 if in_percent(base) else 0.008, 0.06 * (high - low))
    axes.set_ylim(max(0.0, low - margin), high + 2.2 * margin)
    axes.plot(
        [best[1]], [best[0]], "o", markersize=9, markerfacecolor="none", color=WRONG, linestyle="",
        label=named, clip_on=False, zorder=3,
    )  # fmt: skip
    bottom, top = axes.get_ylim()
    if len(panel.curves) < 4:
        axes.legend(frameon=False, fontsize=8, markerscale=0.6)
    else:
        top += 0.4 * (top - bottom)  # room for the names above the curves
        axes.set_ylim(bottom, top)
        axes.legend(
            frameon=False, fontsize=7, markerscale=0.6, loc="upper left", ncols=2,
            handlelength=1.5, columnspacing=1.0,
        )  # fmt: skip
    if in_percent(base):
        axes.set_yticks([tick for tick in axes.get_yticks() if bottom <= tick <= 100])
        axes.set_ylim(bottom, top)


def _with_percent(key: str, value: float) -> str:
    return f"{number_text(key, value)}{' %' if in_percent(key) else ''}"


def _draw_rate(axes: Axes, panel: Panel) -> None:
    axes.set_title(panel.title, loc="left", fontsize=10)
    rate = panel.curves.get("rate")
    if rate is None:
        _say_nothing_logged(axes)
        return
    top = max((y for y in rate.y if y > 0), default=1.0)
    power = math.floor(math.log10(top))
    axes.plot(
        rate.x, [y / 10.0**power for y in rate.y], color=RIGHT, linewidth=1.5, marker=_dot(rate)
    )
    axes.set_ylabel(f"learning rate ($10^{{{power}}}$)")
    axes.set_ylim(bottom=0)


def _dot(curve: Series) -> str | None:
    return "o" if len(curve.x) == 1 else None


def _say_nothing_logged(axes: Axes) -> None:
    axes.text(
        0.5, 0.5, "not logged", ha="center", va="center", color=SOFT, transform=axes.transAxes
    )
