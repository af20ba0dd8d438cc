"""Which files of a data set are no sound pictures."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from mmengine.logging import print_log

from polaformer.datasets.decode import (
    BadImage,
    looks_sound,
    stored_size,
    upright_size,
    verify,
)
from polaformer.datasets.progress import looked_at
from polaformer.datasets.sources import Reader
from polaformer.errors import UserError

_HEADER_LIMIT = 200_000
RECORDED = "are recorded as its width and height"


class SampleError(UserError):
    """A sample that cannot be used, met while the data are read.

    Out of a data worker torch raises an error anew with the worker's whole traceback as its
    message; of that only our own sentence is kept.
    """

    def __init__(self, message: str) -> None:
        own = f"{type(self).__module__}.{type(self).__qualname__}: "
        super().__init__(message.rpartition(own)[2].strip())


Size = tuple[int, int]


def bad_images(
    reader: Reader,
    full: bool,
    sizes: Sequence[Size | None] | None = None,
    recorded: str = RECORDED,
    seen: Callable[[int, bytes], None] | None = None,
) -> Iterator[tuple[int, str]]:
    """(index, reason) of every file of ``reader`` that is no sound picture, in order.

    ``full`` decodes every file; otherwise only those whose start and end do not show that they are
    whole. ``sizes`` are the (width, height) that pictures must have, upright or as stored; in a
    reason they '``recorded``'. ``seen`` is called, by several threads, with the index of each
    picture that decodes and a start of its file that has the header.
    """

    def look(index: int) -> str | None:
        try:
            start, end = (b"", b"") if full else reader.peek(index)
            if full or not looks_sound(start, end):
                start = reader.read(index)
                verify(start)
            if seen is not None:
                seen(index, start)
            expected = None if sizes is None else sizes[index]
            if expected is not None and _size_in(start) != expected:
                _check_size(reader.read(index), expected, recorded)
        except (BadImage, OSError) as error:
            return reason(error)
        return None

    for index, why in looked_at(len(reader.names), look):
        if why is not None:
            yield index, why


def check_depth(check: str, limit: int, count: int, where: str) -> str:
    """What 'auto' means for ``count`` images: 'decode' up to ``limit``, 'header' up to 200,000."""
    if check != "auto":
        return check
    if count <= max(limit, _HEADER_LIMIT):
        return "decode" if count <= limit else "header"
    print_log(
        f"{where}: {count:,} images are too many to be checked first (check='header' "
        "or 'decode' does it)",
        logger="current",
    )
    return "none"


def other_size(found: Size, expected: Size, recorded: str = RECORDED) -> str:
    """The reason for a picture whose (width, height) is not the recorded one."""
    return (
        f"the picture is {found[0]} x {found[1]} pixels, but {expected[0]} x {expected[1]} "
        f"{recorded}"
    )


def _size_in(start: bytes) -> Size | None:
    """The stored size; None where the header is longer than ``start``."""
    try:
        return stored_size(start)
    except BadImage:
        return None


def _check_size(data: bytes, expected: Size, recorded: str) -> None:
    found = upright_size(data)
    if expected not in (found, stored_size(data)):
        raise BadImage(other_size(found, expected, recorded))


def reason(error: Exception) -> str:
    """The reason in an error of reading or decoding, without paths."""
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return str(error)
