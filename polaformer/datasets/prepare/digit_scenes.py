"""Scenes composed of scikit-learn's handwritten digits, with boxes and masks in COCO's format."""

from __future__ import annotations

import hashlib
import io
import json
import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from PIL import Image

from polaformer.datasets.prepare.digits import validation_digits
from polaformer.datasets.prepare.made_folder import MadeFolder, png_bytes
from polaformer.datasets.prepare.scene_drawing import Placed, draw_scene
from polaformer.errors import UserError

CARD = "digit_scenes.json"
SUMS = "SHA256SUMS"
CLASSES = tuple("0123456789")
_OWN_NAME = re.compile(
    r"digit_scenes\.json|SHA256SUMS|README\.md|annotations/(train|val)\.json|"
    r"(train|val)(_labels)?/(train|val)_\d+\.png"
)
_SOURCE = "scenes of scikit-learn load_digits (UCI Optical Recognition of Handwritten Digits)"
_VAL_FRACTION = 0.2
_EVERY_EMPTY = 50  # one training scene in so many shows clutter only
_MOST = 100_000
_README = """# Digit scenes

{train} training and {val} validation scenes, drawn with seed {seed}. Each shows up to nine
handwritten digits at different sizes, colours and contrasts among strokes, blobs and fragments that
are no digits. About 2 % of the training scenes show no digit. Where digits overlap, the later one
hides the earlier one; more than half of each stays visible.

The backgrounds are synthetic; the handwriting is real: the 1,797 digits, 8x8 pixels, of UCI's
"Optical Recognition of Handwritten Digits" (E. Alpaydin and C. Kaynak, CC BY 4.0) as shipped with
scikit-learn (`load_digits`), enlarged. 80 % of each digit's handwriting appears in training scenes
only, 20 % in validation scenes only.

    train/, val/                      scenes, RGB PNG, 96 to 192 pixels per side
    annotations/train.json, val.json  COCO instances: boxes tight around the visible pixels, and RLE
    train_labels/, val_labels/        the same for each pixel: 0 is background, digit d is d + 1
    digit_scenes.json                 what was asked for
    SHA256SUMS                        `sha256sum -c SHA256SUMS` tells whether a file was changed

Made by `python tools/prepare_data.py digit-scenes`.
"""


def prepare_digit_scenes(
    out: str | Path = "data/digit_scenes",
    seed: int = 0,
    train: int = 800,
    val: int = 200,
    force: bool = False,
) -> tuple[Path, bool]:
    """Write ``train`` and ``val`` scenes below ``out``; gives the folder and whether it was there.

    The digits are split as ``prepare_digits(seed=seed)`` does, so no handwriting is in both. Scene
    number i depends on ``seed`` and i only: a larger set begins with the smaller one. The same
    options give the same bytes. The folder appears complete or not at all. One that holds exactly
    this is left as it is; any other that is not empty stops with UserError, unless an earlier run
    made it and ``force`` is given.
    """
    for name, value, least in (("seed", seed, 0), ("train", train, 1), ("val", val, 1)):
        if not least <= value <= _MOST:
            raise UserError(f"{name}={value} must lie between {least} and {_MOST:,}")
    target = Path(out).expanduser().resolve()
    card = {"source": _SOURCE, "version": 1, "seed": seed, "train": train, "val": val}
    folder = MadeFolder(target, CARD, _OWN_NAME)
    reused = folder.bring(
        card, lambda: _difference(folder, seed), lambda: _with_sums(_files(seed, train, val)), force
    )
    return target, reused


def _files(seed: int, train: int, val: int) -> Iterator[tuple[str, bytes]]:
    yield "README.md", _README.format(train=train, val=val, seed=seed).encode()
    for number, (split, count) in enumerate((("train", train), ("val", val))):
        glyphs = _glyphs(seed, split)
        images: list[dict] = []
        annotations: list[dict] = []
        for index in range(count):
            generator = np.random.default_rng([seed, number, index])
            empty = split == "train" and index % _EVERY_EMPTY == _EVERY_EMPTY - 1
            scene, placed = draw_scene(generator, glyphs, empty)
            name = f"{split}_{index + 1:04d}.png"
            yield f"{split}/{name}", png_bytes(scene)
            yield f"{split}_labels/{name}", png_bytes(_label_map(scene.shape[:2], placed))
            height, width = scene.shape[:2]
            images.append({"id": index + 1, "file_name": name, "width": width, "height": height})
            for one in placed:
                annotations.append(_annotation(len(annotations) + 1, index + 1, one))
        yield f"annotations/{split}.json", _coco(split, seed, images, annotations)


def _glyphs(seed: int, split: str) -> list[np.ndarray]:
    """Per digit the pictures of one split: float [N, 8, 8], ink from 0 to 1."""
    from sklearn.datasets import load_digits

    data = load_digits()
    held_out = validation_digits(data.target, seed, _VAL_FRACTION)
    in_val = np.isin(np.arange(len(data.target)), sorted(held_out))
    chosen = in_val if split == "val" else ~in_val
    return [data.images[chosen & (data.target == digit)] / 16 for digit in range(10)]


def _annotation(number: int, image: int, placed: Placed) -> dict:
    top, bottom = np.flatnonzero(placed.mask.any(axis=1))[[0, -1]].tolist()
    left, right = np.flatnonzero(placed.mask.any(axis=0))[[0, -1]].tolist()
    return {
        "id": number,
        "image_id": image,
        "category_id": placed.digit + 1,
        "bbox": [left, top, right - left + 1, bottom - top + 1],
        "area": int(placed.mask.sum()),
        "iscrowd": 0,
        "segmentation": _rle(placed.mask),
    }


def _rle(mask: np.ndarray) -> dict:
    try:
        from pycocotools.mask import encode
    except ImportError as error:
        raise UserError("digit-scenes needs pycocotools: pip install pycocotools") from error
    coded = encode(np.asfortranarray(mask, dtype=np.uint8))
    return {"size": list(mask.shape), "counts": coded["counts"].decode("ascii")}


def _label_map(shape: tuple[int, ...], placed: list[Placed]) -> np.ndarray:
    labels = np.zeros(shape, np.uint8)
    for one in placed:
        labels[one.mask] = one.digit + 1
    return labels


def _coco(split: str, seed: int, images: list[dict], annotations: list[dict]) -> bytes:
    content = {
        "info": {
            "description": f"Digit scenes, {split}: handwritten digits on synthetic backgrounds, "
            f"seed {seed}",
            "url": "https://archive.ics.uci.edu/dataset/80",
            "version": "1",
            "contributor": "handwriting: E. Alpaydin, C. Kaynak (UCI), by way of scikit-learn",
        },
        "licenses": [
            {
                "id": 1,
                "name": "Creative Commons Attribution 4.0 International (the handwriting)",
                "url": "https://creativecommons.org/licenses/by/4.0/",
            }
        ],
        "images": [{**image, "license": 1} for image in images],
        "annotations": annotations,
        "categories": [
            {"id": number, "name": name, "supercategory": "digit"}
            for number, name in enumerate(CLASSES, start=1)
        ],
    }
    return json.dumps(content).encode()


def _with_sums(files: Iterator[tuple[str, bytes]]) -> Iterator[tuple[str, bytes]]:
    lines = []
    for name, content in files:
        lines.append(f"{hashlib.sha256(content).hexdigest()}  {name}\n")
        yield name, content
    yield SUMS, "".join(lines).encode()


def _difference(folder: MadeFolder, seed: int) -> str | None:
    """What was changed in ``folder`` since it was written, or in how it would be; or None."""
    try:
        lines = (folder.target / SUMS).read_text(encoding="utf-8").splitlines()
        sums = {name: digest for digest, _, name in (line.partition("  ") for line in lines)}
    except (OSError, ValueError):
        return f"{SUMS} is missing"
    names = folder.other_names([SUMS, *sums])
    if names is not None:
        return names
    for name, digest in sums.items():
        if hashlib.sha256((folder.target / name).read_bytes()).hexdigest() != digest:
            return f"{name} was changed"
    for name, content in _files(seed, 1, 1):
        if name.endswith(".png") and not _same_pixels(folder.target / name, io.BytesIO(content)):
            return f"{name} is now drawn otherwise"
    return None


def _same_pixels(*files: Path | io.BytesIO) -> bool:
    """Whether two pictures are equal; another version of Pillow may pack them differently."""
    with Image.open(files[0]) as one, Image.open(files[1]) as other:
        return one.size == other.size and one.tobytes() == other.tobytes()
