"""The tables of the page about a run: its epochs and its classes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from polaformer.visualization.measures import (
    families,
    in_percent,
    measures_of,
    number_text,
    short_name_of,
)
from polaformer.visualization.page import folded, number, section, table
from polaformer.visualization.results import (
    RunResults,
    finite,
    split_scalars,
    train_step,
    val_epoch,
)

FOLD_ABOVE = 25
_MEASURES_SHOWN = 6


def epochs_section(results: RunResults) -> str:
    """The best and the last epoch (or validation, by iterations), and all of them folded."""
    train, val = split_scalars(results.scalars)
    by_epoch = results.unit == "epoch"
    losses = {
        int(place): finite(record.get("loss"))
        for record in train
        if (place := finite(record.get("epoch")) if by_epoch else train_step(record)) is not None
    }
    keys = _shown_measures(val)
    has_loss = any("loss" in record for record in val)
    rows = []
    for record in val:
        epoch = int(val_epoch(record) or 0)
        loss = [number(finite(record.get("loss")), 4)] if has_loss else []
        values = [number_text(key, finite(record.get(key)), "–") for key in keys]
        seen = epoch if by_epoch else max((step for step in losses if step <= epoch), default=0)
        rows.append((epoch, number(losses.get(seen), 4), *loss, *values))
    names = [f"{short_name_of(key)}{' (%)' if in_percent(key) else ''}" for key in keys]
    header = (results.unit, "training loss", *(["validation loss"] if has_loss else []), *names)
    if not rows:
        return ""
    first = len(header) - len(names)
    best = max(rows, key=lambda row: _value(row[first]) if keys else 0.0)
    last = rows[-1]
    short = table(
        ("", *header),
        [("best", *best), ("last", *last)] if best != last else [("last and best", *last)],
    )
    title, kind = ("Epochs", "epochs") if by_epoch else ("Validations", "validations")
    return section(title, short, folded(f"all {len(rows)} {kind}", table(header, rows)))


def _shown_measures(val: Sequence[Mapping[str, Any]]) -> list[str]:
    """The first two measures of each family, as far as a page is wide."""
    groups = families(measures_of(val))
    return [key for base, rest in groups.items() for key in (base, *rest[:1])][:_MEASURES_SHOWN]


def _value(text: Any) -> float:
    known = finite(text)
    return -1.0 if known is None else known


def classes_section(results: RunResults) -> str:
    """What the test says of every class."""
    if not results.classifies:
        return _class_values(results)
    rows = list(per_class_rows(results))
    if not rows:
        return ""
    rows.sort(key=lambda row: (row[1] is None, row[1]))
    html = table(
        ("class", "accuracy (%)", "right", "images"),
        [(name, number(accuracy), right, count) for name, accuracy, right, count in rows],
    )
    return _folded_if_long("Accuracy per class, lowest first", html, len(rows))


def _class_values(results: RunResults) -> str:
    """Every value of every class, whatever the metric calls them."""
    values = results.class_table
    if not values.rows:
        return ""
    names = [f"{short_name_of(key)}{' (%)' if in_percent(key) else ''}" for key in values.columns]
    rows = [
        (name, *(number_text(k, v) for k, v in zip(values.columns, cells, strict=True)))
        for name, cells in values.worst_first()
    ]
    return _folded_if_long("Classes, lowest first", table(("class", *names), rows), len(rows))


def _folded_if_long(title: str, html: str, count: int) -> str:
    return section(title, html if count <= FOLD_ABOVE else folded(f"all {count} classes", html))


def per_class_rows(
    results: RunResults,
) -> Iterator[tuple[str, float | None, int | None, int | None]]:
    """(class, accuracy in percent, right, images); images without a finite score count as wrong."""
    given = as_mapping(results.metrics.get("per_class"))
    support = as_mapping(results.metrics.get("support"))
    confusion = results.confusion
    for index, name in enumerate(results.classes or [str(key) for key in given]):
        row = confusion[index] if confusion else None
        right = int(row[index]) if row else None
        known = finite(support.get(name))
        total = int(known) if known is not None else int(sum(row)) if row else None
        accuracy = finite(given.get(name))
        if accuracy is None and right is not None and total:
            accuracy = 100.0 * right / total
        if accuracy is not None or total is not None:
            yield name, accuracy, right, total


def as_mapping(value: Any) -> Mapping[str, Any]:
    """``value`` if it is a mapping, else an empty one."""
    return value if isinstance(value, Mapping) else {}
