"""The handwritten digits that ship with scikit-learn, written as class folders."""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from PIL import Image

from polaformer.datasets.sources import is_hidden
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
    if target.is_dir() and any(target.iterdir()):
        difference = _difference(target, pictures, card)
        if difference is None:
            return target, True
        _may_replace(target, difference, force)
    elif target.exists() and not target.is_dir():
        raise UserError(f"{target} is a file; choose another folder with --out")
    try:
        _write(target, pictures, card)
    except OSError as error:
        raise UserError(f"cannot write {target}: {error.strerror or error}") from error
    return target, False


def _pictures(seed: int, val_fraction: float, size: int) -> dict[str, np.ndarray]:
    """'train/3/digit_0042.png' -> uint8 [size, size], for all digits."""
    from sklearn.datasets import load_digits

    data = load_digits()
    generator = np.random.default_rng(seed)
    val: set[int] = set()
    for digit in range(10):
        members = np.flatnonzero(data.target == digit)
        count = min(max(1, round(len(members) * val_fraction)), len(members) - 1)
        val |= set(generator.permutation(members)[:count].tolist())
    pictures = {}
    for i, (ink, digit) in enumerate(zip(data.images, data.target, strict=True)):
        gray = Image.fromarray(np.rint(ink * (255 / _TOP)).astype(np.uint8))
        if size != _NATIVE:
            gray = gray.resize((size, size), Image.Resampling.BICUBIC)
        name = f"{'val' if i in val else 'train'}/{digit}/digit_{i:04d}.png"
        pictures[name] = np.asarray(gray)
    return pictures


def _difference(folder: Path, pictures: dict[str, np.ndarray], card: dict) -> str | None:
    """What makes ``folder`` another data set than this one, or None."""
    there = _files(folder)
    extra, missing = sorted(there - {CARD, *pictures}), sorted({CARD, *pictures} - there)
    there_card = _read_card(folder)
    if there_card is not None and there_card != card:
        odd = [key for key in card if there_card.get(key) != card[key]]
        return "; ".join(f"{key} is {there_card.get(key)}, asked for {card[key]}" for key in odd)
    if extra:
        return f"it has other files, for example {extra[0]}"
    if missing:
        return f"{len(missing)} of its files are missing, for example {missing[0]}"
    for name, expected in pictures.items():
        try:
            with Image.open(folder / name) as image:
                same = image.mode == "L" and np.array_equal(np.asarray(image), expected)
        except (OSError, ValueError, SyntaxError):
            same = False
        if not same:
            return f"{name} was changed"
    return None


def _files(folder: Path) -> set[str]:
    return {
        path.relative_to(folder).as_posix()
        for path in folder.rglob("*")
        if not path.is_dir() and not is_hidden(path.name)
    }


def _read_card(folder: Path) -> dict | None:
    try:
        card = json.loads((folder / CARD).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return card if isinstance(card, dict) else None


def _may_replace(target: Path, difference: str, force: bool) -> None:
    card = _read_card(target)
    ours = card is not None and "scikit-learn" in str(card.get("source"))
    foreign = [name for name in sorted(_files(target)) if not _OWN_NAME.fullmatch(name)]
    if not ours or foreign:
        raise UserError(
            f"{target} holds other files (for example {(foreign or sorted(_files(target)))[0]}) "
            "and is never overwritten; choose another folder with --out"
        )
    if not force:
        raise UserError(
            f"{target} was made by this command but is not what was asked for ({difference}); "
            "--force replaces it, --out chooses another folder"
        )


def _write(target: Path, pictures: dict[str, np.ndarray], card: dict) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    with _scratch(target) as scratch:
        new = scratch / "new"
        for name, pixels in pictures.items():
            path = new / name
            path.parent.mkdir(parents=True, exist_ok=True)
            buffer = io.BytesIO()
            Image.fromarray(pixels).save(buffer, format="PNG")
            path.write_bytes(buffer.getvalue())
        (new / CARD).write_text(json.dumps(card, indent=2) + "\n", encoding="utf-8")
        if target.exists():
            os.rename(target, scratch / "old")
        os.rename(new, target)


@contextlib.contextmanager
def _scratch(target: Path) -> Iterator[Path]:
    """A folder beside ``target``, from where a rename puts finished work in place at once."""
    folder = Path(tempfile.mkdtemp(prefix=f".{target.name}.partial-", dir=target.parent))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
