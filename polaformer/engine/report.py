"""The tables that a test prints."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from polaformer.visualization.measures import ClassTable, class_table, in_percent, number_text

ONE_BLOCK = 40
"""Rows that stand below each other; more of them stand side by side where there is room.
What finds none is in ``metrics.json``."""


def print_table(content: Mapping[str, Any]) -> None:
    """Print what ``metrics.json`` holds to standard output: metrics, and values per class."""
    from rich.console import Console
    from rich.table import Table

    console = Console()
    form = " with test-time augmentation" if content.get("tta") else ""
    console.print(f"\nTest of {Path(content['checkpoint']).name}{form}", style="italic")
    table = Table()
    table.add_column("metric")
    table.add_column("value", justify="right")
    for name, value in content["metrics"].items():
        table.add_row(name, number_text(name, value))
    classes = class_table(content)
    if content["metrics"]:
        console.print(table)
    elif not classes.rows:
        console.print("nothing was measured")
    if classes.rows:
        _print_classes(console, classes)


def _print_classes(console: Any, classes: ClassTable) -> None:
    from rich.table import Table

    count = len(classes.rows)
    rows = classes.rows if count <= ONE_BLOCK else classes.worst_first()
    width = console.measure(_block(classes, rows)).maximum + 1
    blocks = max(1, min(console.width // width, -(-count // ONE_BLOCK)))
    rows = rows[: blocks * ONE_BLOCK]
    title = "Per class" if count <= ONE_BLOCK else "Per class, lowest first"
    if len(rows) < count:
        title = f"The {len(rows)} worst of {count} classes (metrics.json has all)"
    height = -(-len(rows) // blocks)
    parts = [rows[start : start + height] for start in range(0, len(rows), height)]
    grid = Table.grid(padding=(0, 1, 0, 0))
    for _ in parts:
        grid.add_column()
    grid.add_row(*(_block(classes, part) for part in parts))
    console.print(f"\n{title}", style="italic", highlight=False)
    console.print(grid)


def _block(classes: ClassTable, rows: Sequence[tuple[str, tuple[Any, ...]]]) -> Any:
    from rich.table import Table
    from rich.text import Text

    table = Table()
    table.add_column("class")
    for key in classes.columns:
        table.add_column(f"{key} in %" if in_percent(key) else key, justify="right")
    for name, values in rows:
        cells = [number_text(k, v) for k, v in zip(classes.columns, values, strict=True)]
        table.add_row(Text(name), *cells)
    return table
