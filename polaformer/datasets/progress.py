"""Many files looked at by several threads, with a word on how long it will take."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from mmengine.logging import print_log

_BLOCK = 512
_FIRST_LINE_AFTER, _SECONDS_BETWEEN_LINES = 2, 10
_Result = TypeVar("_Result")


def looked_at(
    count: int, look: Callable[[int], _Result], what: str = "images"
) -> Iterator[tuple[int, _Result]]:
    """(index, ``look(index)``) for 0 … count - 1, in order; no more than a block waits in memory.

    Says how far it is and about how long the rest takes, after two seconds and then every ten. What
    has not begun is dropped when the caller stops, as by Ctrl-C.
    """
    start = time.monotonic()
    tell_at = start + _FIRST_LINE_AFTER
    pool = ThreadPoolExecutor(min(8, 2 * (os.cpu_count() or 1)))
    try:
        for first in range(0, count, _BLOCK):
            block = range(first, min(first + _BLOCK, count))
            for index, found in zip(block, pool.map(look, block), strict=True):
                yield index, found
                if time.monotonic() >= tell_at and index + 1 < count:
                    tell_at = time.monotonic() + _SECONDS_BETWEEN_LINES
                    _tell(index + 1, count, time.monotonic() - start, what)
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _tell(done: int, count: int, seconds: float, what: str) -> None:
    left = seconds / done * (count - done)
    told = f"{left / 60:.0f} min" if left >= 90 else f"{left:.0f} s"
    print_log(f"looked at {done:,} of {count:,} {what}, about {told} left", "current")
