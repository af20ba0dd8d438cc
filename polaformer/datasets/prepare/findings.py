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
