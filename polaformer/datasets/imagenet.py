"""ImageNet-1K: class folders, archives as distributed, or a flat validation folder with a list."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import lru_cache
from pathlib import Path

from timm.data import ImageNetInfo

from polaformer.datasets.decode import is_image_name
from polaformer.datasets.image_folder import ImageFolder
from polaformer.datasets.layout import locate_split, name_some
from polaformer.errors import UserError
from polaformer.registry import DATASETS

SYNSET = re.compile(r"n\d{8}")
_OFFICIAL = {"train": "ILSVRC2012_img_train", "val": "ILSVRC2012_img_val"}
_LISTS = ("{split}.txt", "meta/{split}.txt", "{split}/{split}.txt")


@lru_cache(maxsize=1)
def imagenet_synsets() -> tuple[str, ...]:
    """The 1000 synset names of ImageNet-1K in class order (sorted), from timm."""
    return tuple(ImageNetInfo("imagenet-1k").label_names())


def describe_classes(classes: Sequence[str]) -> tuple[str, ...]:
    """English names of synsets ('n01440764' -> 'tench, Tinca tinca'); other words stay."""
    info = ImageNetInfo("imagenet-1k")
    known = set(imagenet_synsets())
    return tuple(info.label_name_to_description(c) if c in known else c for c in classes)


@DATASETS.register_module()
class ImageNet(ImageFolder):
    """ImageNet-1K below ``data_root``; ``metainfo['class_names']`` has the English names.

    A split is data_root/<split>/<synset>/*.JPEG, or data_root/<split>.tar or .zip of the same, or
    the official ILSVRC2012_img_<split>.tar (the class archives inside train's are read in place).
    A flat val folder or archive needs a list of '<file> <synset or number from 0>' lines:
    ``ann_file``, or val.txt in ``data_root``, in data_root/meta, or beside the images.

    Without ``classes`` the folders must be exactly the 1000 synsets; ``classes`` admits a subset.
    Like the published training, pixels are taken as stored: alpha dropped, EXIF orientation
    ignored. Other arguments: see ``ImageFolder``.
    """

    def __init__(
        self,
        data_root: str | Path = "data/imagenet",
        split: str = "train",
        transforms: dict | Sequence | Callable | None = None,
        classes: Sequence[str] | None = None,
        ann_file: str | Path | None = None,
        on_error: str = "stop",
        check: str | None = "auto",
        check_limit: int = 20_000,
        alpha: str = "drop",
        exif: bool = False,
    ) -> None:
        if split not in _OFFICIAL:
            raise UserError(f"split='{split}' of ImageNet is not known (allowed: train, val)")
        root, inner_split = _where(Path(data_root).expanduser(), split)
        if ann_file is None and split == "val" and _is_flat(root, inner_split):
            ann_file = _find_list(Path(data_root).expanduser(), split)
        super().__init__(
            root,
            inner_split,
            transforms=transforms,
            classes=classes,
            ann_file=ann_file,
            on_error=on_error,
            check=check,
            check_limit=check_limit,
            alpha=alpha,
            exif=exif,
        )
        self.metainfo["class_names"] = describe_classes(self.classes)

    def check_classes(self, from_list: bool) -> None:
        """Class folders that were found must be the 1000 synsets."""
        if not from_list:
            check_synsets(self.classes, self.base)

    def vocabulary(self) -> tuple[str, ...]:
        """The 1000 synsets: numbers in a list count in their order, whatever subset is taken."""
        return imagenet_synsets()


def check_synsets(classes: Sequence[str], base: str) -> None:
    """Raise UserError unless ``classes`` are the 1000 synsets, naming what differs."""
    odd = [name for name in classes if not SYNSET.fullmatch(name)]
    foreign = sorted(set(classes) - set(imagenet_synsets()) - set(odd))
    missing = sorted(set(imagenet_synsets()) - set(classes))
    problems = []
    if odd:
        problems.append(f"no synset names (n and eight digits): {name_some(odd, 5)}")
    if foreign:
        problems.append(f"not among the 1000 of ImageNet-1K: {name_some(foreign, 5)}")
    if missing:
        problems.append(
            f"{len(missing)} of the 1000 synsets have no folder: {name_some(missing, 5)}"
        )
    if problems:
        raise UserError(
            f"{base} is not ImageNet-1K ({len(classes)} class folders): {'; '.join(problems)}. "
            "For a subset give classes=[…]; for other images use polaformer.ImageFolder"
        )


def _where(root: Path, split: str) -> tuple[Path, str | None]:
    """The folder or archive to open for ``split``, and the folder to look for in it."""
    if root.is_dir() and not (root / split).is_dir():
        official = root / f"{_OFFICIAL[split]}.tar"
        if official.is_file():
            return official, None
    return root, split


def _is_flat(root: Path, split: str | None) -> bool:
    """Whether the images lie side by side, without class folders."""
    source, prefix = locate_split(root, split)
    found = source.listing(prefix)
    return not found.folders and any(is_image_name(name) for name in found.files)


def _find_list(root: Path, split: str) -> Path:
    root = root if root.is_dir() else root.parent
    candidates = [root / pattern.format(split=split) for pattern in _LISTS]
    for path in candidates:
        if path.is_file():
            return path
    raise UserError(
        f"{root}: the images of '{split}' lie side by side, so their classes are unknown. "
        "Needed: a list with lines '<file> <synset>' (for example 'ILSVRC2012_val_00000001.JPEG "
        f"n01751748') at {candidates[0]}, or given as ann_file=…. The devkit's ground-truth file "
        "does not serve: it names no files, and its numbers follow another order than the "
        "sorted synsets"
    )
