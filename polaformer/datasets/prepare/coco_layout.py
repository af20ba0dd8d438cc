"""Which annotation files a folder holds, and where the images of each lie."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from itertools import islice
from pathlib import Path

from polaformer.datasets.coco_pictures import resolved
from polaformer.datasets.layout import name_some
from polaformer.errors import UserError, did_you_mean

_OTHER_FILES = ("captions_", "person_keypoints_", "panoptic_", "stuff_", "image_info_")
_SPLITS = ("train", "training", "val", "valid", "validation", "test", "testing")
_TRIED = 20


def annotation_files(root: Path, given: Sequence[str]) -> list[Path]:
    """The files ``given``, below ``root`` or where they are; without any, those found in ``root``.

    Found are annotations/instances_*.json, other annotations/*.json, <split>/_annotations.coco.json
    and *.json, whichever comes first; training before validation.
    """
    if given:
        return [_given(root, name) for name in given]
    if root.is_file():
        return [root]
    if not root.is_dir():
        raise UserError(
            f"there is no {root} (looked in {Path.cwd()}); data/README.md says how COCO is laid out"
        )
    folder = root / "annotations"
    candidates = [
        sorted(folder.glob("instances_*.json")),
        [p for p in sorted(folder.glob("*.json")) if not p.name.startswith(_OTHER_FILES)],
        [root / split / "_annotations.coco.json" for split in _SPLITS],
        sorted(root.glob("*.json")),
    ]
    for names in candidates:
        files = [path for path in names if path.is_file()]
        if files:
            return sorted(files, key=lambda path: "train" not in title_of(path))
    there = name_some(sorted(os.listdir(root)), 10) or "nothing"
    raise UserError(
        f"{root} has no annotation file (annotations/instances_train2017.json or another .json); "
        f"it holds: {there}. Your own: --ann FILE --images FOLDER"
    )


def _given(root: Path, name: str) -> Path:
    places = [root / Path(name).expanduser(), Path(name).expanduser()]
    for path in places:
        if path.is_file():
            return path
    folder = places[0].parent
    near = sorted(p.name for p in folder.iterdir()) if folder.is_dir() else []
    hint = did_you_mean(places[0].name, near)
    raise UserError(f"--ann: there is no file {places[0]}" + (f"; {hint}" if hint else ""))


def title_of(path: Path) -> str:
    """'train2017' of instances_train2017.json; the folder's name of _annotations.coco.json."""
    if path.name == "_annotations.coco.json":
        return path.parent.name
    return path.stem.removeprefix("instances_")


def image_folders(root: Path, files: Sequence[Path], given: Sequence[str]) -> list[Path | None]:
    """One of the folders ``given`` for each of ``files``, or None where none was given."""
    if len(given) not in (0, 1, len(files)):
        raise UserError(
            f"--images has {len(given)} folders for {len(files)} annotation files; give one for "
            "each, or one for all"
        )
    found: list[Path | None] = []
    for name in given:
        places = [root / Path(name).expanduser(), Path(name).expanduser()]
        path = next((place for place in places if place.is_dir()), None)
        if path is None:
            raise UserError(f"--images: there is no folder {places[0]}")
        found.append(path)
    return found * len(files) if len(found) == 1 else found or [None] * len(files)


def guess_image_folder(root: Path, file: Path, names: Sequence[str]) -> Path:
    """The likely folder of the images ``names``: of those that exist, the one with most of them."""
    if root.is_file():
        root = root.parent.parent if root.parent.name == "annotations" else root.parent
    title = title_of(file)
    split = re.search("|".join(sorted(_SPLITS, key=len, reverse=True)), title.lower())
    words = dict.fromkeys([file.stem, title, *([split[0]] if split else [])])
    places = [place for word in words for place in (root / word, root / "images" / word)]
    places += [root / word / "images" for word in words]
    places += [root / "images", root / "JPEGImages", root, file.parent]
    folders = [path for path in places if path.is_dir()]

    def count(folder: Path) -> int:
        return sum(
            os.path.isfile(folder / resolved(str(folder), name)) for name in islice(names, _TRIED)
        )

    return max(folders, key=count)  # the first of equals
