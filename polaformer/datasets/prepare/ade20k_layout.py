"""Where ADE20K's scene parsing benchmark lies, and what lies there instead."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from polaformer.datasets.layout import name_some
from polaformer.datasets.sources import is_hidden
from polaformer.errors import UserError

COUNTS = {"training": 20_210, "validation": 2_000}
"""Images of the published splits (https://github.com/CSAILVision/sceneparsing)."""

HOW_TO_GET = (
    "Nothing is downloaded. The benchmark is "
    "http://data.csail.mit.edu/places/ADEchallenge/ADEChallengeData2016.zip (about 0.9 GB, of "
    "http://sceneparsing.csail.mit.edu); unpacked in data/ it makes data/ADEChallengeData2016. The "
    "full ADE20K, for which https://ade20k.csail.mit.edu asks to register, is another release"
)
_ZIP = "ADEChallengeData2016.zip"
_FOLDER = "ADEChallengeData2016"
_KINDS = ("images", "annotations")
_OTHER_NAMES = {
    "images": ("image", "img", "imgs", "JPEGImages"),
    "annotations": ("annotation", "masks", "labels", "annotations_detectron2"),
    "training": ("train", "train2016", "Training", "trn"),
    "validation": ("val", "valid", "validate", "Validation", "test"),
}
_OF_THE_FULL_RELEASE = ("index_ade20k.mat", "index_ade20k.pkl", "index_ade20k_2015.mat")
_LOOKED_AT = 400


@dataclass(frozen=True)
class SplitFolders:
    """The two folders of one split, both there."""

    title: str
    images: Path
    masks: Path


def find_splits(root: Path) -> tuple[list[SplitFolders], list[str]]:
    """The complete splits below ``root``, and a sentence for each folder that is missing.

    Raises UserError that says what ``root`` is where it is not the benchmark at all.
    """
    _refuse_what_it_is_not(root)
    splits, missing = [], []
    for title in COUNTS:
        folders = [root / kind / title for kind in _KINDS]
        gone = [folder for folder in folders if not folder.is_dir()]
        missing += [_missing(folder) for folder in gone]
        if not gone:
            splits.append(SplitFolders(title, *folders))
    return splits, missing


def _refuse_what_it_is_not(root: Path) -> None:
    if not root.exists():
        raise UserError(_not_there(root))
    if not root.is_dir():
        kind = "; unpack it and give the folder" if root.suffix.lower() == ".zip" else ""
        raise UserError(f"{root} is a file, not the folder {_FOLDER}{kind}")
    try:
        names = sorted(name for name in os.listdir(root) if not is_hidden(name))
    except OSError as error:
        raise UserError(f"cannot list folder {root}: {error.strerror}") from error
    if full := _full_release(root, names):
        raise UserError(
            f"{root} is the full ADE20K release ({full}), not the scene parsing benchmark with 150 "
            f"classes. {HOW_TO_GET}"
        )
    if any((root / kind / title).is_dir() for kind in _KINDS for title in COUNTS):
        return
    inner = [name for name in names if _is_benchmark(root / name)]
    if inner:
        raise UserError(
            f"{root} is one level too high: {root / inner[0]} has images and annotations; use that "
            "as ROOT (and as data_root in a config)"
        )
    for up in (root.resolve().parent, root.resolve().parent.parent):
        if root.resolve().name in (*_KINDS, *COUNTS) and _is_benchmark(up):
            raise UserError(f"{root} is a part of the benchmark; use {up} as ROOT")
    if any((root / kind).is_dir() for kind in _KINDS):
        return
    if _ZIP in names:
        raise UserError(f"{root / _ZIP} is not unpacked yet: python -m zipfile -e {_ZIP} FOLDER")
    raise UserError(
        f"{root} has neither images nor annotations; it holds: {name_some(names, 10) or 'nothing'}"
        f"{_other_name(root, 'images')}. {HOW_TO_GET}"
    )


def _not_there(root: Path) -> str:
    zips = [path for path in (root.parent / _ZIP, Path(_ZIP)) if path.is_file()]
    if zips:
        return (
            f"there is no {root}, but {zips[0]} is there and not unpacked: python -m zipfile -e "
            f"{zips[0]} {root.parent}"
        )
    return f"there is no {root} (looked in {Path.cwd()}). {HOW_TO_GET}"


def _full_release(root: Path, names: list[str]) -> str | None:
    """What shows that ``root`` is the full release, or None."""
    found = [name for name in names if name in _OF_THE_FULL_RELEASE]
    if found:
        return f"it has {found[0]}"
    for folder in (root / "images" / "ADE", root / "ADE", root / "images" / "training", root):
        for name in _first_files(folder):
            if name.endswith("_seg.png") or "_parts_" in name or name.endswith("_atr.txt"):
                return f"it has files like {os.path.basename(name)}"
    return None


def _first_files(folder: Path) -> list[str]:
    """Some files below ``folder``, its own first; little is read, however large it is."""
    found: list[str] = []
    for place, folders, files in os.walk(folder):
        depth = len(Path(place).relative_to(folder).parts)
        folders[:] = sorted(folders)[:3] if depth < 4 else []
        found += [os.path.join(place, name) for name in sorted(files)[:20]]
        if len(found) >= _LOOKED_AT:
            break
    return found


def _is_benchmark(folder: Path) -> bool:
    return any((folder / kind / title).is_dir() for kind in _KINDS for title in COUNTS)


def _missing(folder: Path) -> str:
    """What is missing, and what stands there under another name."""
    parent = folder.parent
    if not parent.is_dir():
        return f"{folder} is missing: there is no {parent}{_other_name(parent.parent, parent.name)}"
    there = sorted(entry.name for entry in os.scandir(parent) if not is_hidden(entry.name))
    holds = f"; {parent} holds: {name_some(there, 5)}" if there else f"; {parent} is empty"
    return f"{folder} is missing{_other_name(parent, folder.name) or holds}"


def _other_name(parent: Path, name: str) -> str:
    for other in _OTHER_NAMES.get(name, ()):
        if (parent / other).is_dir():
            if other == "annotations_detectron2":
                return (
                    f"; {parent / other} is numbered otherwise (classes from 0, 255 ignored) and "
                    "does not serve"
                )
            return f"; there is {parent / other}, which may be it: rename it to '{name}'"
    return ""
