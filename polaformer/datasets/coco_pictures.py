"""Where the images of an annotation file lie, how large they are, and which of them are bad."""

from __future__ import annotations

import ntpath
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from unicodedata import normalize

from polaformer.datasets.decode import BadImage, upright_size
from polaformer.datasets.integrity import RECORDED, Size, bad_images, check_depth
from polaformer.datasets.layout import name_some
from polaformer.datasets.sources import FolderReader, PackedNames, printable
from polaformer.errors import UserError, did_you_mean

_MISSING = "the file is missing"


def checked_prefix(data_prefix: Mapping[str, str] | None) -> dict[str, str]:
    """dict(img=folder) with '~' resolved; raises UserError for anything else."""
    if data_prefix is None:
        return {"img": ""}
    if not isinstance(data_prefix, Mapping) or not all(
        isinstance(path, (str, os.PathLike)) for path in data_prefix.values()
    ):
        raise UserError(f"data_prefix={data_prefix!r} must be dict(img='folder of the images')")
    unknown = [key for key in data_prefix if key != "img"]
    if unknown:
        raise UserError(f"data_prefix has the key '{unknown[0]}'; the only one is img: dict(img=…)")
    return {key: os.path.expanduser(path) for key, path in data_prefix.items()}


def image_folder(data_prefix: Mapping[str, str], data_root: str) -> str:
    """The folder that file names count from; raises UserError if it does not exist."""
    return existing_folder(data_prefix.get("img") or data_root or ".")


def existing_folder(folder: str) -> str:
    """``folder``; raises UserError that says what there is if it does not exist."""
    if os.path.isdir(folder):
        return folder
    path = Path(folder)
    above = next((p for p in path.parents if p.is_dir()), Path("."))
    folders = sorted(entry.name for entry in os.scandir(above) if entry.is_dir())
    missing = path.relative_to(above).parts[0] if above in path.parents else path.name
    hint = did_you_mean(missing, folders)
    raise UserError(
        f"data_prefix: there is no folder {path} (looked in {Path.cwd()}); "
        f"{hint + ' ' if hint else ''}{above} holds the folders: {name_some(folders, 10) or 'none'}"
    )


def resolved(folder: str, file_name: str) -> str:
    """``file_name`` as a path below ``folder``, or an absolute one if there is such a file.

    Backslashes count as slashes where no file has them in its name; of a path on another machine
    the longest end that exists below ``folder`` is taken; accented letters may be written as one
    sign or as two (macOS writes two).
    """
    foreign = "\\" in file_name or file_name.startswith("/") or file_name[1:2] == ":"
    if not foreign and file_name.isascii():
        return file_name
    for name in _spellings(file_name):
        if os.path.exists(os.path.join(folder, name)):
            return name
    return file_name.replace("\\", "/")


def _spellings(file_name: str) -> Iterator[str]:
    path = file_name.replace("\\", "/")
    for name in dict.fromkeys((file_name, path)):
        yield from dict.fromkeys((name, normalize("NFC", name), normalize("NFD", name)))
    drive, rest = ntpath.splitdrive(path)
    if drive or rest.startswith("/"):
        parts = [part for part in rest.split("/") if part]
        for start in range(len(parts)):
            tail = "/".join(parts[start:])
            yield from dict.fromkeys((tail, normalize("NFC", tail), normalize("NFD", tail)))


class Pictures:
    """Access to the images of one data set; index i is the i-th of ``file_names``."""

    def __init__(self, folder: str, file_names: Sequence[str]) -> None:
        self.folder = folder
        self.reader = FolderReader(
            folder, PackedNames(resolved(folder, name) for name in file_names)
        )

    def path(self, index: int) -> str:
        """Where the file lies, whether or not it exists."""
        return self.reader.path(index)

    def size(self, index: int) -> Size | None:
        """(width, height) from the file's header, upright; None if it cannot be read."""
        try:
            return upright_size(self.reader.read(index))
        except (BadImage, OSError):
            return None

    def bad(
        self,
        check: str,
        check_limit: int,
        sizes: Sequence[Size | None],
        where: str,
        recorded: str = RECORDED,
        seen: Callable[[int, bytes], None] | None = None,
    ) -> list[tuple[int, str]]:
        """(index, reason) of every bad image; ``check`` as in ``CocoDataset``.

        In a reason, the sizes '``recorded``'. ``seen`` is that of ``bad_images``.
        """
        check = check_depth(check, check_limit, len(self.reader.names), where)
        if check == "none":
            return []
        return list(bad_images(self.reader, check == "decode", sizes, recorded, seen))

    def complaint(self, bad: Sequence[tuple[int, str]], data_root: str) -> str:
        """'K of N images are bad:' and a line 'path: reason' for each.

        If every single file is missing, a few lines and a guess where they are.
        """
        count = len(self.reader.names)
        lost = len(bad) == count and all(why == _MISSING for _, why in bad)
        lines = [f"  {printable(self.path(i))}: {why}" for i, why in (bad[:3] if lost else bad)]
        if lost and count > 3:
            lines.append(f"  … and {count - 3} more")
        guess = self._elsewhere(data_root) if lost else None
        if guess is not None:
            lines.append(f"  but {guess} exists: {_prefix_for(guess, self.reader.names[0])}")
        return f"{len(bad)} of {count} images are bad:\n" + "\n".join(lines)

    def _elsewhere(self, data_root: str) -> str | None:
        """Where the first image is, one folder higher, lower or beside."""
        name = self.reader.names[0]
        folder = Path(self.folder)
        for base in dict.fromkeys((Path(data_root or "."), folder, folder.parent)):
            for place in (base, *(p for p in sorted(base.iterdir()) if p.is_dir())):
                if (place / name).is_file():
                    return os.path.normpath(place / name)
        return None


def _prefix_for(path: str, name: str) -> str:
    folder = path.removesuffix(os.path.normpath(name)).rstrip("/") or "."
    return f"data_prefix=dict(img=…) must lead to {folder}"
