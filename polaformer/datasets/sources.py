"""Where image files lie, behind one interface: what is common to all, and folders on disk."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, Protocol, overload

import numpy as np

from polaformer.errors import UserError

HEAD, TAIL = 32_768, 64
_JUNK = {"thumbs.db", "desktop.ini", "__macosx", "@eadir"}


class MissingFile(OSError):
    """A file that a list or a link names and that does not exist."""


def printable(name: str) -> str:
    """``name`` in a form every terminal and log file can take, whatever bytes the disk holds."""
    return name.encode("utf-8", "backslashreplace").decode("utf-8")


def is_hidden(name: str) -> bool:
    """Whether a name is housekeeping of an operating system ('._x.jpg', 'Thumbs.db')."""
    return name.startswith(".") or name.lower() in _JUNK


class PackedNames(Sequence[str]):
    """An immutable list of strings in one buffer.

    A million Python strings cost hundreds of megabytes, again in every data worker that touches
    their reference counts; one buffer is shared between forked workers.
    """

    def __init__(self, names: Iterable[str]) -> None:
        encoded = [name.encode("utf-8", "surrogateescape") for name in names]
        self._buffer = b"".join(encoded)
        self._ends = np.cumsum([0, *map(len, encoded)], dtype=np.int64)

    def __len__(self) -> int:
        return len(self._ends) - 1

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[str]: ...
    def __getitem__(self, index: int | slice) -> str | Sequence[str]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        position = range(len(self))[index]
        start, end = int(self._ends[position]), int(self._ends[position + 1])
        return self._buffer[start:end].decode("utf-8", "surrogateescape")


@dataclass
class Listing:
    """Files and folders of a source, relative to its root with '/', and what was left out."""

    files: list[str] = field(default_factory=list)
    folders: set[str] = field(default_factory=set)
    ignored: list[tuple[str, str]] = field(default_factory=list)

    def below(self, prefix: str) -> Listing:
        """The part under folder ``prefix`` ('' for all), with names relative to it."""
        if not prefix:
            return self
        start = f"{prefix}/"
        return Listing(
            [name.removeprefix(start) for name in self.files if name.startswith(start)],
            {name.removeprefix(start) for name in self.folders if name.startswith(start)},
            self.ignored,
        )


class Reader(Protocol):
    """Random access to a fixed list of files; index i is the i-th name it was made with."""

    names: PackedNames

    def path(self, index: int) -> str:
        """A path (or archive and member) that tells a person where the file is."""

    def size(self, index: int) -> int:
        """Bytes of the file; raises OSError if it is gone."""

    def read(self, index: int) -> bytes:
        """The whole file; raises OSError if it cannot be read."""

    def peek(self, index: int) -> tuple[bytes, bytes]:
        """Up to 32 KiB of the start and 64 bytes of the end; raises OSError likewise."""


class Source(Protocol):
    """A place with files."""

    location: Path

    def listing(self, prefix: str = "") -> Listing:
        """All files under folder ``prefix``, sorted, named relative to it."""

    def reader(self, prefix: str, names: Sequence[str]) -> Reader:
        """Access to ``names`` under ``prefix``; a name that is not there fails when it is read."""


class FolderSource:
    """Files on disk; found with one scandir per folder and without a stat per file."""

    def __init__(self, location: Path) -> None:
        self.location = location

    def listing(self, prefix: str = "") -> Listing:
        found = Listing()
        base = self.location / prefix
        self._scan(str(base), "", frozenset([_identity(str(base))]), found)
        found.files.sort()
        return found

    def _scan(self, folder: str, prefix: str, above: frozenset[tuple], found: Listing) -> None:
        try:
            with os.scandir(folder) as entries:
                visible = [entry for entry in entries if not is_hidden(entry.name)]
        except OSError as error:
            raise UserError(f"cannot list folder {printable(folder)}: {error.strerror}") from error
        for entry in visible:
            name = f"{prefix}{entry.name}"
            if not entry.is_dir():
                found.files.append(name)
                continue
            identity = _identity(entry.path)
            if identity in above:
                found.ignored.append((name, "links back to a folder above it"))
                continue
            found.folders.add(name)
            self._scan(entry.path, f"{name}/", above | {identity}, found)

    def reader(self, prefix: str, names: Sequence[str]) -> FolderReader:
        return FolderReader(str(self.location / prefix), PackedNames(names))


def _identity(folder: str) -> tuple[int, int] | tuple[str]:
    try:
        status = os.stat(folder)
    except OSError:
        return (folder,)
    return (status.st_dev, status.st_ino) if status.st_ino else (os.path.realpath(folder),)


class FolderReader:
    """Reads files below one folder."""

    def __init__(self, base: str, names: PackedNames) -> None:
        self.base = base
        self.names = names

    def path(self, index: int) -> str:
        return os.path.join(self.base, self.names[index])

    def size(self, index: int) -> int:
        return os.stat(self.path(index)).st_size

    def read(self, index: int) -> bytes:
        with self._open(index) as file:
            return file.read()

    def peek(self, index: int) -> tuple[bytes, bytes]:
        with self._open(index) as file:
            size = os.fstat(file.fileno()).st_size
            head = file.read(HEAD)
            file.seek(max(0, size - TAIL))
            return head, file.read(TAIL)

    def _open(self, index: int) -> BinaryIO:
        path = self.path(index)
        try:
            # Opening a named pipe would wait for ever, so only what is a regular file is opened.
            if not stat.S_ISREG(os.stat(path).st_mode):
                raise OSError("not a regular file")
            return open(path, "rb")
        except FileNotFoundError as error:
            broken = "the link points to nothing" if os.path.islink(path) else "the file is missing"
            raise MissingFile(broken) from error
