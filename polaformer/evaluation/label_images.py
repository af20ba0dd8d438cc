"""Class maps as PNG files: pixels are class numbers, viewers show the colours of the classes."""

from __future__ import annotations

import io
import os
from collections.abc import Iterable, Sequence
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


def safe_names(images: Sequence[tuple[str, str]]) -> list[PurePosixPath]:
    """A relative path without suffix for each image, given as (id, path); no two are the same.

    Ids keep their subfolders. Ids that are the path itself (of data without ids) count from the
    folder that all of them share, without the suffix. No name leads out of the folder it is put in.
    """
    unnamed = [os.path.dirname(os.path.abspath(path)) for key, path in images if key == path]
    root = os.path.commonpath(unnamed) if unnamed else "."
    taken: set[str] = set()
    names = []
    for key, path in images:
        text = os.path.splitext(os.path.relpath(path, root))[0] if key == path else key
        parts = [part for part in text.replace("\\", "/").split("/") if part not in ("", ".", "..")]
        name = "/".join(parts).replace("\0", "") or "image"
        number, free = 1, name
        while free.casefold() in taken:
            number += 1
            free = f"{name}_{number}"
        taken.add(free.casefold())
        names.append(PurePosixPath(free))
    return names


def write_label_images(folder: Path, pictures: Iterable[tuple[PurePosixPath, bytes]]) -> None:
    """Write each of ``pictures`` below ``folder``, whole or not at all."""
    for name, content in pictures:
        path = folder / f"{name}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
        temporary.write_bytes(content)
        os.replace(temporary, path)
