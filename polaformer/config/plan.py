"""What a config would do, and what is wrong with it: the result of a dry run."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from polaformer.config.measure import Cost, Memory

if TYPE_CHECKING:
    from rich.table import Table

GIB = 2**30


@dataclass(frozen=True)
class DataFound:
    """One split of the data."""

    images: int
    classes: tuple[str, ...]
    where: str
    present: bool = True

    def __str__(self) -> str:
        text = f"{self.images:,} images, {len(self.classes)} classes in {self.where}"
        return text if self.present else f"not found: {self.where} (planned with {self.images:,})"


@dataclass(frozen=True)
class Steps:
    """Length of a training run."""

    epochs: float
    """Passes over the data; a run that counts iterations may end within one."""
    per_epoch: int
    batch_size: int
    processes: int
    accumulation: int = 1
    iterations: int | None = None
    """Length of a run that counts iterations."""

    @property
    def total(self) -> int:
        return self.iterations or int(self.epochs) * self.per_epoch

    @property
    def global_batch(self) -> int:
        """Images per forward pass over all processes."""
        return self.batch_size * self.processes

    def __str__(self) -> str:
        if self.iterations is None:
            text = f"{self.epochs} epochs x {self.per_epoch:,} = {self.total:,}"
        else:
            text = f"{self.total:,} iterations = {self.epochs:,.1f} epochs of {self.per_epoch:,}"
        batch = f"{self.batch_size} x {self.processes} process{'es' * (self.processes > 1)}"
        if self.accumulation > 1:
            batch += f", an update every {self.accumulation}"
        return f"{text} (batch {batch})"


@dataclass
class Plan:
    """Problems first; then what would run."""

    config: str
    problems: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    model: str = ""
    cost: Cost | None = None
    counted: str = ""
    """The parts of the model that the cost covers, if not all."""
    memory: Memory | None = None
    data: dict[str, DataFound] = field(default_factory=dict)
    steps: Steps | None = None
    pauses: str = ""
    """When a run that counts iterations validates and saves."""
    lr: float | None = None
    lr_rule: str = ""

    @property
    def sound(self) -> bool:
        """True if training may start."""
        return not self.problems

    def rows(self) -> list[tuple[str, str]]:
        """Name and value of everything known, in reading order."""
        rows = [("config", self.config), ("model", self.model)]
        if self.cost is not None:
            high, wide = self.cost.input_size
            rows += [
                ("parameters", f"{self.cost.params / 1e6:.3f} M{self._frozen()}"),
                (
                    f"cost at {high} x {wide}",
                    f"{self.cost.macs / 1e9:.3f} G multiply-adds = {2 * self.cost.macs / 1e9:.3f} "
                    "GFLOPs per image, forward",
                ),
            ]
        if self.memory is not None:
            rows.append(("memory of a step", self._memory()))
        if self.cost is not None:
            rows.append(("counted", self.counted))
        rows += self._data()
        if self.steps is not None:
            rows.append(("steps", str(self.steps)))
        rows.append(("on the way", self.pauses))
        if self.lr is not None:
            rows.append(("learning rate", f"{self.lr:.4g}{self.lr_rule}"))
        return [(name, value) for name, value in rows if value]

    def _data(self) -> list[tuple[str, str]]:
        splits: dict[str, list[str]] = {}
        for split, found in self.data.items():
            splits.setdefault(str(found), []).append(split)
        return [(f"{', '.join(names)} data", text) for text, names in splits.items()]

    def _frozen(self) -> str:
        assert self.cost is not None
        frozen = self.cost.params - self.cost.trainable
        return f", {frozen / 1e6:.3f} M of them frozen" if frozen else ""

    def _memory(self) -> str:
        assert self.memory is not None
        parts = asdict(self.memory).items()
        detail = ", ".join(f"{name} {size / GIB:.2f}" for name, size in parts if size)
        return f"about {self.memory.total / GIB:.2f} GiB per process ({detail})"

    def table(self) -> Table:
        """The plan as a two-column rich table."""
        from rich.table import Table
        from rich.text import Text

        table = Table(show_header=False, box=None, pad_edge=False)
        table.add_column(style="bold", no_wrap=True)
        table.add_column()
        for name, value in self.rows():
            table.add_row(name, Text(value))
        return table

    def to_dict(self) -> dict[str, Any]:
        """Plain containers for JSON."""
        found = asdict(self)
        found["sound"] = self.sound
        for split, data in found["data"].items():
            data["classes"] = len(self.data[split].classes)
        if self.memory is not None:
            found["memory"]["total"] = self.memory.total
        if self.steps is not None:
            found["steps"].update(total=self.steps.total, global_batch=self.steps.global_batch)
        if self.cost is not None:
            found["cost"]["flops"] = 2 * self.cost.macs
        return found


_NUMBERS = ("params M", "GMACs", "input", "GiB/step", "batch", "steps", "lr", "data")
_FIRST_TO_GO = ("lr", "GiB/step", "steps", "batch", "data", "input", "GMACs", "params M")
"""Columns in the order in which a narrow terminal loses them."""


def summary_table(plans: Sequence[Plan], width: int) -> Table:
    """One row per config; columns that do not fit into ``width`` are left out."""
    from rich.table import Table
    from rich.text import Text

    folder, names = _names([plan.config for plan in plans])
    columns = {"config": names}
    columns |= dict(zip(_NUMBERS, map(list, zip(*map(_cells, plans), strict=True)), strict=True))
    columns["verdict"] = [_verdict(plan) for plan in plans]
    for name in _FIRST_TO_GO:
        if _width_of(columns) > width:
            del columns[name]
    title = f"configs in {folder}" if folder else None
    table = Table(box=None, pad_edge=False, header_style="bold", title=title)
    table.title_justify, table.title_style = "left", ""
    for name in columns:
        overflow: Any = "fold" if name == "config" else "ellipsis"
        justify: Any = "right" if name in _NUMBERS[:-1] else "left"
        table.add_column(name, justify=justify, no_wrap=name != "config", overflow=overflow)
    for plan, *cells, verdict in zip(plans, *columns.values(), strict=True):
        told = Text(verdict, style="green" if plan.sound else "red")
        table.add_row(*map(Text, cells), told)
    return table


def _names(paths: Sequence[str]) -> tuple[str, list[str]]:
    """The folder of most configs, and the name of each without it."""
    folder = Counter(os.path.dirname(path) for path in paths).most_common(1)[0][0]
    if not folder:
        return "", list(paths)
    at_home = [os.path.dirname(path) == folder for path in paths]
    short = [os.path.basename(path).removesuffix(".py") for path in paths]
    return folder, [s if home else p for s, home, p in zip(short, at_home, paths, strict=True)]


def _verdict(plan: Plan) -> str:
    count = len(plan.problems)
    return "sound" if plan.sound else f"{count} problem{'s' * (count > 1)}"


def _width_of(columns: Mapping[str, Sequence[str]]) -> int:
    """Characters of a row, with two blanks between columns."""
    return sum(max(map(len, (name, *cells))) + 2 for name, cells in columns.items()) - 2


def _cells(plan: Plan) -> list[str]:
    cost, steps = plan.cost, plan.steps
    found = {data.present for data in plan.data.values()}
    data = "-" if not found else "found" if found == {True} else "not here"
    return [
        f"{cost.params / 1e6:.3f}" if cost else "-",
        f"{cost.macs / 1e9:.3f}" if cost else "-",
        "x".join(map(str, cost.input_size)) if cost else "-",
        f"{plan.memory.total / GIB:.1f}" if plan.memory else "-",
        f"{steps.batch_size}x{steps.processes}" if steps else "-",
        f"{steps.total:,}" if steps else "-",
        f"{plan.lr:.3g}" if plan.lr is not None else "-",
        data,
    ]
