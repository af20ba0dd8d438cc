"""Where image files lie: in a folder, in a .tar or in a .zip, behind one interface.

An archive is indexed once and then read at random by offset, without extracting anything. Readers
are picklable and open their file once per process and thread, so forked and spawned data workers
are safe.
"""

from __future__ import annotations

import os
import stat
import struct
import tarfile
import threading
import zipfile
import zlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import BinaryIO, Protocol, overload

import numpy as np

from polaformer.errors import UserError

ARCHIVE_SUFFIXES = (".tar", ".zip")
_COMPRESSED_TAR = (".tar.gz", ".tgz", ".tar.bz2", ".tbz2", ".tar.xz", ".txz", ".tar.zst")
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


def open_source(location: str | Path) -> Source:
    """The source at ``location``: an existing folder, or an uncompressed .tar or a .zip file."""
    path = Path(location).expanduser()
    if path.is_dir():
        return FolderSource(path)
    if not path.exists():
        raise UserError(f"there is no folder or archive {path} (looked in {Path.cwd()})")
    lower = path.name.lower()
    if lower.endswith(_COMPRESSED_TAR):
        raise UserError(
            f"{path} is a compressed tar, which allows no random access; unpack it, or make a "
            "plain "
            ".tar of it (images are compressed already, so it will hardly be larger)"
        )
    if lower.endswith(".tar"):
        return TarSource(path)
    if lower.endswith(".zip"):
        return ZipSource(path)
    raise UserError(f"{path} is neither a folder nor a .tar or .zip archive")


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


class _OpenFile:
    """One read handle per process and thread; never pickled, never shared across a fork."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._local = threading.local()

    def __reduce__(self) -> tuple[type[_OpenFile], tuple[str]]:
        return type(self), (self.path,)

    def read_at(self, offset: int, size: int) -> bytes:
        if getattr(self._local, "pid", None) != os.getpid():
            self._local.file = open(self.path, "rb")  # noqa: SIM115 - lives as long as the reader
            self._local.pid = os.getpid()
        file: BinaryIO = self._local.file
        file.seek(offset)
        data = file.read(size)
        if len(data) != size:
            raise OSError("the archive ends before this member does")
        return data


# A member's place: offset, bytes stored, bytes unpacked, compression (zip) or -1 (plain), checksum.
Place = tuple[int, int, int, int, int]
_PLAIN = -1


class ArchiveReader:
    """Reads members of one archive by their offsets."""

    def __init__(
        self, location: str, members: Sequence[str], names: PackedNames, places: np.ndarray
    ):
        self.location = location
        self.members = PackedNames(members)
        self.names = names
        self.places = places
        self._file = _OpenFile(location)

    def path(self, index: int) -> str:
        return f"{self.location}/{self.members[index]}"

    def size(self, index: int) -> int:
        return int(self._place(index)[2])

    def read(self, index: int) -> bytes:
        offset, stored, size, method, checksum = self._place(index)
        if method == _PLAIN:
            return self._file.read_at(offset, size)
        header = self._file.read_at(offset, 30)
        name_length, extra_length = struct.unpack("<HH", header[26:30])
        data = self._file.read_at(offset + 30 + name_length + extra_length, stored)
        if method == zipfile.ZIP_DEFLATED:
            try:
                data = zlib.decompress(data, wbits=-15)
            except zlib.error as error:
                raise OSError(f"damaged in the archive ({error})") from error
        if zlib.crc32(data) != checksum:
            raise OSError("damaged in the archive (checksum differs)")
        return data

    def peek(self, index: int) -> tuple[bytes, bytes]:
        offset, _, size, method, _ = self._place(index)
        if method != _PLAIN:
            data = self.read(index)
            return data[:HEAD], data[-TAIL:]
        start, end = min(HEAD, size), min(TAIL, size)
        head = self._file.read_at(offset, start)
        return head, self._file.read_at(offset + size - end, end)

    def _place(self, index: int) -> list[int]:
        place = self.places[index].tolist()
        if place[0] < 0:
            raise MissingFile("no such member in the archive")
        return place


class _ArchiveSource:
    """What tar and zip share once their members are indexed."""

    def __init__(self, location: Path, index: Callable[[Path], _Index]) -> None:
        self.location = location
        self._index = index(location)

    def listing(self, prefix: str = "") -> Listing:
        found = Listing(sorted(self._index.places), self._index.folders, self._index.ignored)
        return found.below(prefix)

    def reader(self, prefix: str, names: Sequence[str]) -> ArchiveReader:
        members = [f"{prefix}/{name}" if prefix else name for name in names]
        nowhere: Place = (-1, 0, 0, _PLAIN, 0)
        places = [self._index.places.get(member, nowhere) for member in members]
        table = np.array(places, dtype=np.int64).reshape(len(members), 5)
        return ArchiveReader(str(self.location), members, PackedNames(names), table)


@dataclass
class _Index:
    places: dict[str, Place] = field(default_factory=dict)
    folders: set[str] = field(default_factory=set)
    ignored: list[tuple[str, str]] = field(default_factory=list)

    def safe_name(self, raw: str) -> str | None:
        """``raw`` without './' if it stays inside the archive's own tree; otherwise noted, None."""
        path = PurePosixPath(raw)
        if path.is_absolute() or ".." in path.parts or raw[1:2] == ":":
            self.ignored.append((raw, "its path leads outside of the archive"))
            return None
        parts = [part for part in path.parts if part != "."]
        return None if any(map(is_hidden, parts)) else "/".join(parts)

    def add_folder(self, name: str) -> None:
        while name:
            self.folders.add(name)
            name = name.rpartition("/")[0]

    def add(self, name: str, place: Place) -> None:
        self.places[name] = place
        self.add_folder(name.rpartition("/")[0])


class TarSource(_ArchiveSource):
    """A plain .tar; archives inside it (as ImageNet has one per class) count as folders."""

    def __init__(self, location: Path) -> None:
        super().__init__(location, _index_tar)


class ZipSource(_ArchiveSource):
    """A .zip whose members are stored or deflated."""

    def __init__(self, location: Path) -> None:
        super().__init__(location, _index_zip)


def _index_tar(location: Path) -> _Index:
    index = _Index()
    with open(location, "rb") as file:
        try:
            inner = _index_tar_members(file, "", index)
            for name, offset in inner:
                file.seek(offset)
                deeper = _index_tar_members(file, name.removesuffix(".tar"), index)
                index.ignored += [
                    (found, "an archive inside an inner archive") for found, _ in deeper
                ]
        except (tarfile.TarError, OSError) as error:
            raise UserError(f"{location} is no readable tar archive: {error}") from error
    return index


def _index_tar_members(file: BinaryIO, prefix: str, index: _Index) -> list[tuple[str, int]]:
    inner: list[tuple[str, int]] = []
    links: list[tuple[str, str]] = []
    with tarfile.open(fileobj=file, mode="r:") as archive:
        while (member := archive.next()) is not None:
            archive.members.clear()  # type: ignore[attr-defined]  # a million of these would fill the memory
            name = index.safe_name(member.name)
            if not name:
                continue
            name = f"{prefix}/{name}" if prefix else name
            if member.isdir():
                index.add_folder(name)
            elif member.islnk() or member.issym():
                links.append((name, _link_target(name, member, prefix)))
            elif not member.isreg() or member.issparse():
                index.ignored.append((name, "not a plain file in the archive"))
            elif name.lower().endswith(".tar"):
                inner.append((name, member.offset_data))
            else:
                index.add(name, (member.offset_data, member.size, member.size, _PLAIN, 0))
    for name, target in links:
        if target in index.places:
            index.add(name, index.places[target])
        else:
            index.ignored.append((name, f"a link to '{target}', which is not in the archive"))
    return inner


def _link_target(name: str, member: tarfile.TarInfo, prefix: str) -> str:
    """The name a link means: hard links count from the root, others from the link's folder."""
    if member.issym():
        return os.path.normpath(os.path.join(os.path.dirname(name), member.linkname))
    return os.path.normpath(os.path.join(prefix, member.linkname))


def _index_zip(location: Path) -> _Index:
    index = _Index()
    try:
        with zipfile.ZipFile(location) as archive:
            members = archive.infolist()
    except (zipfile.BadZipFile, OSError) as error:
        raise UserError(f"{location} is no readable zip archive: {error}") from error
    for member in members:
        name = index.safe_name(member.filename.replace("\\", "/"))
        if not name:
            continue
        if member.is_dir():
            index.add_folder(name)
        elif member.flag_bits & 1:
            index.ignored.append((name, "encrypted in the archive"))
        elif member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            index.ignored.append((name, "packed with a method other than store or deflate"))
        else:
            size, packed = member.file_size, member.compress_size
            index.add(name, (member.header_offset, packed, size, member.compress_type, member.CRC))
    return index
