"""The table that a test prints."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

MAX_CLASSES = 30
"""Above this many classes the table shows the worst ones only; ``metrics.json`` has all."""


def class_rows(content: Mapping[str, Any]) -> list[tuple[str, float | None, int]]:
    """(name, accuracy in percent or None, images) per class, from what ``metrics.json`` holds."""
    support = content.get("support") or {}
    return [
        (name, accuracy, support.get(name, 0))
        for name, accuracy in (content.get("per_class") or {}).items()
    ]


def print_table(content: Mapping[str, Any]) -> None:
    """Print the metrics and the accuracy of each class to standard output."""
    from rich.console import Console
    from rich.table import Table

    console = Console()
    table = Table(title=f"Test of {Path(content['checkpoint']).name}")
    table.add_column("metric")
    table.add_column("value", justify="right")
    for name, value in content["metrics"].items():
        table.add_row(name, f"{value:.4f}" if "loss" in name else f"{value:.2f}")
    console.print(table)
    rows = class_rows(content)
    if not rows:
        return
    title = "Accuracy per class"
    if len(rows) > MAX_CLASSES:
        rows = sorted(rows, key=lambda row: (row[1] is None, row[1]))[:MAX_CLASSES]
        title = f"The {MAX_CLASSES} worst classes"
    table = Table(title=title)
    for column in ("class", "top-1 in %", "images"):
        table.add_column(column, justify="left" if column == "class" else "right")
    for name, accuracy, count in rows:
        table.add_row(name, "-" if accuracy is None else f"{accuracy:.2f}", str(count))
    console.print(table)
