"""What a check finds: how often, whether it is a problem, and a few examples."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from polaformer.datasets.sources import printable

_EXAMPLES = 5
_RARE = 1000


@dataclass
class Finding:
    """Something odd in ``count`` places; ``examples`` name some of them, with the reason."""

    label: str
    count: int
    examples: Sequence[str] = ()
    problem: bool = True

    def __str__(self) -> str:
        shown = "; ".join(printable(text) for text in self.examples[:_EXAMPLES])
        more = f"; … and {self.count - _EXAMPLES:,} more" if self.count > _EXAMPLES else ""
        return f"{self.label}: {self.count:,}" + (f" ({shown}{more})" if shown else "")


def is_rare(count: int, total: int) -> bool:
    """Whether ``count`` of ``total`` is so little that training does not notice: 1 in 1,000."""
    return count * _RARE <= total


def table(title: str, columns: dict[str, dict[str, int]]) -> list[str]:
    """``columns`` of counts side by side; a line that one lacks counts 0."""
    names = dict.fromkeys(name for column in columns.values() for name in column)
    width = max(len(printable(name)) for name in [title, *names])
    widths = [max(9, len(head)) for head in columns]
    heads = [f"{head:>{w}}" for head, w in zip(columns, widths, strict=True)]
    lines = ["  ".join([f"{title:<{width}}", *heads])]
    for name in names:
        counts = [column.get(name, 0) for column in columns.values()]
        cells = [f"{count:>{w},}" for count, w in zip(counts, widths, strict=True)]
        lines.append("  ".join([f"{printable(name):<{width}}", *cells]))
    return lines
