"""Images inside a .tar or .zip, read in place.

An archive is indexed once and then read at random by offset, without extracting anything. Readers
are picklable and open their file once per process and thread, so forked and spawned data workers
are safe.
"""

from __future__ import annotations

import os
import struct
import tarfile
import threading
import zipfile
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import BinaryIO

import numpy as np

from polaformer.datasets.sources import (
    HEAD,
    TAIL,
    FolderSource,
    Listing,
    MissingFile,
    PackedNames,
    Source,
    is_hidden,
)
from polaformer.errors import UserError
from polaformer.zip_names import zip_member_name

ARCHIVE_SUFFIXES = (".tar", ".zip")
_COMPRESSED_TAR = (".tar.gz", ".tgz", ".tar.bz2", ".tbz2", ".tar.xz", ".txz", ".tar.zst")


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
            "plain .tar of it (images are compressed already, so it will hardly be larger)"
        )
    if lower.endswith(".tar"):
        return TarSource(path)
    if lower.endswith(".zip"):
        return ZipSource(path)
    raise UserError(f"{path} is neither a folder nor a .tar or .zip archive")


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
_ABSENT: Place = (-1, 0, 0, _PLAIN, 0)
_DANGLING: Place = (-2, 0, 0, _PLAIN, 0)


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
            dangling = place[0] == _DANGLING[0]
            raise MissingFile(
                "the link points to nothing" if dangling else "no such member in the archive"
            )
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
        places = [self._index.places.get(member, _ABSENT) for member in members]
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
        index.add(name, index.places.get(target, _DANGLING))
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
        name = index.safe_name(zip_member_name(member).replace("\\", "/"))
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
