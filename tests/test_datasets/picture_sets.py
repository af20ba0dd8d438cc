"""Small picture sets, generated on the spot."""

from __future__ import annotations

import zipfile
from pathlib import Path

import numpy as np
from PIL import Image

COLOURS = {"blue": (30, 40, 200), "green": (40, 190, 50), "red": (210, 35, 45)}


def noisy(colour: tuple[int, int, int], seed: int, size: tuple[int, int] = (64, 64)) -> Image.Image:
    """A flat colour with Gaussian noise of sigma 8."""
    noise = np.random.default_rng(seed).normal(0, 8, (*size, 3))
    return Image.fromarray(np.clip(np.array(colour) + noise, 0, 255).astype(np.uint8))


def write_classes(root: Path, per_class: int = 4, suffix: str = ".jpg") -> Path:
    """``per_class`` pictures in each of the folders blue, green, red."""
    for name, colour in COLOURS.items():
        (root / name).mkdir(parents=True)
        for i in range(per_class):
            noisy(colour, seed=i).save(root / name / f"{i}{suffix}", quality=95)
    return root


def cut(path: Path, share: float = 0.6) -> None:
    """Keep the first ``share`` of a file's bytes."""
    data = path.read_bytes()
    path.write_bytes(data[: int(len(data) * share)])


def zip_without_mark(folder: Path, archive: Path, encoding: str = "utf-8") -> Path:
    """All files of ``folder`` with names in ``encoding`` and no mark of it, as Info-ZIP packs."""
    placeholder = "~" * len("grün".encode(encoding))
    with zipfile.ZipFile(archive, "w") as target:
        for path in sorted(p for p in folder.rglob("*") if p.is_file()):
            name = path.relative_to(folder).as_posix()
            target.write(path, name.replace("grün", placeholder))
    data = archive.read_bytes()
    archive.write_bytes(data.replace(placeholder.encode(), "grün".encode(encoding)))
    return archive
