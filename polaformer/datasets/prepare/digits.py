"""The handwritten digits that ship with scikit-learn, written as class folders."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
from PIL import Image

from polaformer.datasets.prepare.made_folder import MadeFolder, png_bytes
from polaformer.errors import UserError

CARD = "digits.json"
_OWN_NAME = re.compile(r"digits\.json|(train|val)/\d/digit_\d{4}\.png")
_NATIVE = 8
_TOP = 16  # the data set counts ink from 0 to 16


def prepare_digits(
    out: str | Path = "data/digits",
    seed: int = 0,
    val_fraction: float = 0.2,
    size: int = 32,
    force: bool = False,
) -> tuple[Path, bool]:
    """Write train/0..9 and val/0..9 below ``out``; gives the folder and whether it was there.

    The pictures are the 1,797 of UCI's "Optical Recognition of Handwritten Digits" test set, 8x8
    with 17 levels of gray: scaled to 0..255, enlarged to ``size`` x ``size`` pixels (bicubic;
    ``size=8`` keeps them as they are) and stored as gray PNG. Of each class ``val_fraction`` goes
    to val, chosen by ``seed``. The folder appears complete or not at all. One that holds exactly
    this is left as it is; any other that is not empty stops with UserError, unless an earlier run
    made it and ``force`` is given.
    """
    if not 0 < val_fraction < 1:
        raise UserError(f"val_fraction={val_fraction} must lie between 0 and 1, for example 0.2")
    if not _NATIVE <= size <= 1024:
        raise UserError(f"size={size} must lie between {_NATIVE} (as they are) and 1024 pixels")
    if seed < 0:
        raise UserError(f"seed={seed} must not be negative")
    target = Path(out).expanduser().resolve()
    pictures = _pictures(seed, val_fraction, size)
    card = {
        "source": "scikit-learn load_digits (UCI Optical Recognition of Handwritten Digits)",
        "images": len(pictures),
        "size": size,
        "seed": seed,
        "val_fraction": val_fraction,
    }
    folder = MadeFolder(target, CARD, _OWN_NAME)
    reused = folder.bring(
        card,
        lambda: _difference(folder, pictures),
        lambda: ((name, png_bytes(pixels)) for name, pixels in pictures.items()),
        force,
    )
    return target, reused


def validation_digits(targets: np.ndarray, seed: int, val_fraction: float) -> set[int]:
    """The numbers of the pictures held out: ``val_fraction`` of each class, chosen by ``seed``."""
    generator = np.random.default_rng(seed)
    val: set[int] = set()
    for digit in range(10):
        members = np.flatnonzero(targets == digit)
        count = min(max(1, round(len(members) * val_fraction)), len(members) - 1)
        val |= set(generator.permutation(members)[:count].tolist())
    return val


def _pictures(seed: int, val_fraction: float, size: int) -> dict[str, np.ndarray]:
    """'train/3/digit_0042.png' -> uint8 [size, size], for all digits."""
    from sklearn.datasets import load_digits

    data = load_digits()
    val = validation_digits(data.target, seed, val_fraction)
    pictures = {}
    for i, (ink, digit) in enumerate(zip(data.images, data.target, strict=True)):
        gray = Image.fromarray(np.rint(ink * (255 / _TOP)).astype(np.uint8))
        if size != _NATIVE:
            gray = gray.resize((size, size), Image.Resampling.BICUBIC)
        name = f"{'val' if i in val else 'train'}/{digit}/digit_{i:04d}.png"
        pictures[name] = np.asarray(gray)
    return pictures


def _difference(folder: MadeFolder, pictures: dict[str, np.ndarray]) -> str | None:
    """What makes ``folder`` another data set than this one, or None."""
    names = folder.other_names(pictures)
    if names is not None:
        return names
    for name, expected in pictures.items():
        try:
            with Image.open(folder.target / name) as image:
                same = image.mode == "L" and np.array_equal(np.asarray(image), expected)
        except (OSError, ValueError, SyntaxError):
            same = False
        if not same:
            return f"{name} was changed"
    return None
