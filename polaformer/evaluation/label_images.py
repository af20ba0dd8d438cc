"""Class maps as PNG files: pixels are class numbers, viewers show the colours of the classes."""

from __future__ import annotations

import io
import os
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
import torch
from PIL import Image

PALETTE_UP_TO = 256


def label_image(labels: torch.Tensor, palette: Any, num_classes: int) -> bytes:
    """The PNG file of a map [H, W] of class numbers.

    Up to 256 classes it has a palette: ``palette`` [classes, 3], RGB of 0 to 255, and where that is
    absent or too short gray values that differ. Above that it is a gray image of 16 bits.
    """
    small = labels.to(torch.uint8 if num_classes <= PALETTE_UP_TO else torch.int32)
    values = np.ascontiguousarray(small.cpu().numpy())
    if num_classes <= PALETTE_UP_TO:
        image = Image.fromarray(values)
        image.putpalette(_palette(palette, num_classes))
    else:
        image = Image.fromarray(values.astype(np.uint16))
    file = io.BytesIO()
    image.save(file, format="PNG", compress_level=1)
    return file.getvalue()


def _palette(palette: Any, num_classes: int) -> list[int]:
    given = [] if palette is None else np.asarray(palette, dtype=np.uint8).reshape(-1, 3).tolist()
    step = 255 // max(1, num_classes - 1)
    rest = [[step * number] * 3 for number in range(len(given), num_classes)]
    return [value for colour in (*given, *rest) for value in colour][: 3 * PALETTE_UP_TO]


def roots_of(dataset: Any) -> dict[str, str]:
    """Image folders of a data set and of those inside of it -> what their images' names end in."""
    return dict(_roots(dataset))


def _roots(dataset: Any) -> Iterator[tuple[str, str]]:
    prefix = getattr(dataset, "data_prefix", None) or {}
    folder = prefix.get("img_path") or getattr(dataset, "data_root", None)
    if folder:
        yield os.path.abspath(folder), getattr(dataset, "img_suffix", None) or ""
    inner = getattr(dataset, "datasets", None) or [getattr(dataset, "dataset", None)]
    for one in inner:
        if one is not None:
            yield from _roots(one)


def safe_names(
    images: Sequence[tuple[str, str]], roots: Mapping[str, str] | None = None
) -> list[PurePosixPath]:
    """A relative path without suffix for each image, given as (id, path); no two are the same.

    Ids keep their subfolders. Ids that are the path itself (of data without ids) count from the
    one of ``roots`` (folder -> suffix of its images) that they lie in, and outside of all from the
    folder that such images share. No name leads out of the folder it is put in.
    """
    roots = roots or {}
    paths = [os.path.abspath(path) for key, path in images if key == path]
    lost = [os.path.dirname(path) for path in paths if _root_of(path, roots) is None]
    shared = os.path.commonpath(lost) if lost else "."
    taken: set[str] = set()
    names = []
    for key, path in images:
        text = _below(os.path.abspath(path), roots, shared) if key == path else key
        parts = [part for part in text.replace("\\", "/").split("/") if part not in ("", ".", "..")]
        name = "/".join(parts).replace("\0", "") or "image"
        number, free = 1, name
        while free.casefold() in taken:
            number += 1
            free = f"{name}_{number}"
        taken.add(free.casefold())
        names.append(PurePosixPath(free))
    return names


def _root_of(path: str, roots: Mapping[str, str]) -> str | None:
    """The innermost of ``roots`` that ``path`` lies in."""
    holding = [root for root in roots if path.startswith(os.path.join(root, ""))]
    return max(holding, key=len, default=None)


def _below(path: str, roots: Mapping[str, str], shared: str) -> str:
    root = _root_of(path, roots)
    suffix = "" if root is None else roots[root]
    name = os.path.relpath(path, shared if root is None else root)
    if suffix and name.endswith(suffix):
        return name.removesuffix(suffix)
    return os.path.splitext(name)[0]


def write_label_images(folder: Path, pictures: Iterable[tuple[PurePosixPath, bytes]]) -> None:
    """Write ``pictures`` below ``folder``, in place of all PNG files that it holds.

    Those are removed when every new one has been written.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=f".{folder.name}.") as made:
        written = []
        for name, content in pictures:
            path = Path(made, f"{name}.png")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
            written.append(path)
        _remove_former(folder)
        for path in written:
            target = folder / path.relative_to(made)
            target.parent.mkdir(parents=True, exist_ok=True)
            os.replace(path, target)


def _remove_former(folder: Path) -> None:
    """Remove the PNG files below ``folder``, and the folders that are empty without them."""
    for path in list(folder.rglob("*.png")):
        if path.is_file():
            path.unlink()
    for path in sorted(folder.rglob("*"), reverse=True):
        if path.is_dir() and not path.is_symlink() and not any(path.iterdir()):
            path.rmdir()
