"""The image files that an annotation file names: are they there, whole and of the recorded size?"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from polaformer.datasets.coco_pictures import Pictures
from polaformer.datasets.decode import (
    BadImage,
    is_image_name,
    looks_sound,
    orientation,
    stored_size,
    upright_size,
    verify,
)
from polaformer.datasets.integrity import RECORDED, Size, other_size, reason
from polaformer.datasets.progress import looked_at
from polaformer.datasets.sources import FolderSource
from polaformer.errors import did_you_mean

_HASHED_BYTES = 2**29  # files of equal size are compared up to this many bytes


@dataclass
class Files:
    """What became of the listed images; entries of the lists are 'name: reason'."""

    folder: Path
    names: list[str] = field(default_factory=list)  # of those that are there
    missing: list[str] = field(default_factory=list)
    not_listed: list[str] = field(default_factory=list)
    broken: list[str] = field(default_factory=list)
    other_size: list[str] = field(default_factory=list)
    as_stored: list[str] = field(default_factory=list)  # recorded so, though EXIF turns them
    turned: dict[int, int] = field(default_factory=dict)  # EXIF orientation of those with one


def look_at_files(
    folder: Path,
    file_names: Sequence[str],
    sizes: Sequence[Size | None],
    how: str,
    recorded: str = RECORDED,
) -> Files:
    """Compare ``file_names`` and their recorded ``sizes``, (width, height), with ``folder``.

    ``how`` is 'decode' (every pixel), 'header' (and decode what has no end mark) or 'none' (only
    whether the files are there). In a reason the sizes '``recorded``'.
    """
    found = Files(folder)
    listing = FolderSource(folder).listing().files
    there = set(listing)
    pictures = Pictures(str(folder), file_names)
    present = []
    for i, name in enumerate(pictures.reader.names):
        if os.path.normpath(name) in there or os.path.isfile(pictures.path(i)):
            present.append(i)
            found.names.append(name)
        else:
            found.missing.append(file_names[i])
    listed = {os.path.normpath(name) for name in found.names}
    found.not_listed = [name for name in listing if is_image_name(name) and name not in listed]
    found.missing = _explained(found.missing, there)
    if how != "none":
        _look(found, pictures, present, sizes, how == "decode", recorded)
    return found


def _look(
    found: Files,
    pictures: Pictures,
    present: list[int],
    sizes: Sequence[Size | None],
    full: bool,
    recorded: str,
) -> None:
    reader = pictures.reader

    def look(i: int) -> tuple[str, str] | None:
        try:
            head, tail = reader.peek(i)
            if full or not looks_sound(head, tail):
                head = reader.read(i)
                verify(head)
            if (turn := orientation(head)) != 1:
                found.turned[i] = turn
            size = sizes[i]
            if size is None:
                return None
            stored, upright = _sizes(head) or _sizes(reader.read(i)) or (size, size)
            if size == upright:
                return None
            if size == stored:
                return "as_stored", ""
            return "other_size", other_size(upright, size, recorded)
        except (BadImage, OSError) as error:
            return "broken", reason(error)

    for at, result in looked_at(len(present), lambda at: look(present[at])):
        if result is not None:
            kind, why = result
            name = reader.names[present[at]]
            getattr(found, kind).append(name + (f": {why}" if why else ""))


def _sizes(data: bytes) -> tuple[Size, Size] | None:
    """(width, height) as stored and upright; None if ``data`` does not reach to them."""
    try:
        return stored_size(data), upright_size(data)
    except BadImage:
        return None


def _explained(missing: list[str], there: set[str]) -> list[str]:
    """Missing names, the first few with where a file of that name is or what it may be called."""
    by_base: dict[str, str] = {}
    for name in there:
        by_base.setdefault(os.path.basename(name).lower(), name)
    told = []
    for name in missing[:5]:
        other = by_base.get(os.path.basename(name.replace("\\", "/")).lower())
        hint = f"there is {other}" if other else did_you_mean(name, there)
        told.append(f"{name} ({hint})" if hint else name)
    return told + missing[5:]


def shared_files(first: Files, second: Files) -> list[str]:
    """Images of ``second`` that are also in ``first``: the same content, whatever their names.

    Files of equal length are compared by SHA-256; where that would be too much to read, only those
    of the same name.
    """
    sizes, others = _by_size(first), _by_size(second)
    candidates = {size for size in others if size in sizes}
    cost = sum(size * (len(sizes[size]) + len(others[size])) for size in candidates)
    by_name_only = cost > _HASHED_BYTES
    shared = []
    for size in sorted(candidates):
        mine, theirs = sizes[size], others[size]
        if by_name_only:
            names = {os.path.basename(name) for name in mine}
            theirs = [name for name in theirs if os.path.basename(name) in names]
            names = {os.path.basename(name) for name in theirs}
            mine = [name for name in mine if os.path.basename(name) in names]
        digests = {_digest(first.folder / name): name for name in mine}
        for name in theirs:
            other = digests.get(_digest(second.folder / name))
            if other is not None:
                shared.append(name if other == name else f"{name} (there {other})")
    return shared


def _by_size(files: Files) -> dict[int, list[str]]:
    found: dict[int, list[str]] = {}
    for name in files.names:
        try:
            found.setdefault(os.stat(files.folder / name).st_size, []).append(name)
        except OSError:
            continue
    return found


def _digest(path: Path) -> bytes | None:
    try:
        return hashlib.sha256(path.read_bytes()).digest()
    except OSError:
        return os.urandom(32)  # equal to nothing
