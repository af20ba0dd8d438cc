"""Labelled images in class folders, in an archive, or in a list."""

from __future__ import annotations

import hashlib
import itertools
import logging
import operator
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from mmengine.logging import print_log
from PIL import Image
from torch.utils.data import Dataset
from torchvision.transforms.functional import pil_to_tensor

from polaformer.datasets.decode import ALPHA_RULES, BadImage, decode_rgb
from polaformer.datasets.integrity import SampleError, bad_images, reason
from polaformer.datasets.layout import Layout, class_folders, name_some
from polaformer.datasets.lists import listed_files
from polaformer.datasets.sources import PackedNames, Reader, printable
from polaformer.errors import UserError, did_you_mean
from polaformer.registry import DATASETS, TRANSFORMS

CHECKS = ("auto", "decode", "header", "none")
_HEADER_LIMIT = 200_000
_SIZES_IN_FINGERPRINT = 100_000


class Samples(Sequence[tuple[str, int]]):
    """(path, class number) of every image, stored without a Python object per image."""

    def __init__(self, reader: Reader, labels: np.ndarray) -> None:
        self._reader = reader
        self._labels = labels

    def __len__(self) -> int:
        return len(self._labels)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        position = range(len(self))[index]
        return self._reader.path(position), int(self._labels[position])


@DATASETS.register_module()
class ImageFolder(Dataset):
    """Images in one folder per class: root/[split/]<class>/<image>, on disk or in a .tar or .zip.

    An item is dict(inputs=uint8 tensor [3, H, W], labels=int, indices=int). Classes are the
    folder names in sorted order. Every picture arrives as 8-bit RGB (see ``decode_rgb``). Nothing
    is written to disk.

    Args:
        root: a folder, a .tar or a .zip.
        split: folder below ``root`` (or root/<split>.tar, .zip); None if the class folders lie in
            root.
        transforms: config of a transform, a list of them, or a callable; it takes a PIL image and
            gives a uint8 tensor [3, H, W]. None keeps the picture's own size.
        classes: names that restrict and order the classes.
        ann_file: take the images from this list instead (see ``listed_files``).
        on_error: 'stop' raises UserError naming every bad file found; 'skip' leaves them out.
        check: what is looked at before training: 'decode' every file, 'header' (and decode what
            has no end mark), 'none' or None (``ignored`` is then not logged either), or 'auto':
            decode up to ``check_limit`` images, headers up to 200,000.
        allow_empty: keep classes without an image.
        alpha: 'white', 'black' or 'drop', what transparent pixels show.
        exif: turn pictures as their EXIF orientation says.
    """

    def __init__(
        self,
        root: str | Path,
        split: str | None = None,
        transforms: dict | Sequence | Callable | None = None,
        classes: Sequence[str] | None = None,
        ann_file: str | Path | None = None,
        on_error: str = "stop",
        check: str | None = "auto",
        check_limit: int = 20_000,
        allow_empty: bool = False,
        alpha: str = "white",
        exif: bool = True,
    ) -> None:
        _one_of("on_error", on_error, ("stop", "skip"))
        check = "none" if check is None else check
        _one_of("check", check, CHECKS)
        _one_of("alpha", alpha, ALPHA_RULES)
        self.on_error = on_error
        self.alpha = alpha
        self.exif = exif
        self.transforms = build_transforms(transforms)
        self.skipped: list[tuple[str, str]] = []
        self._told: set[int] = set()
        if ann_file is not None:
            layout = listed_files(root, split, ann_file, classes, self.vocabulary())
        else:
            layout = class_folders(root, split, classes, allow_empty)
        self.base = layout.base
        self.classes: tuple[str, ...] = layout.classes
        self.metainfo: dict[str, Any] = {"classes": self.classes}
        self.ignored = layout.ignored
        self._adopt(layout, layout.names, layout.labels)
        if check != "none":
            self._tell_ignored()
        self.check_classes(from_list=ann_file is not None or classes is not None)
        self._check_first(layout, check, check_limit)

    def vocabulary(self) -> tuple[str, ...] | None:
        """All classes that the words and numbers of a list may mean; None for those asked for."""
        return None

    def check_classes(self, from_list: bool) -> None:
        """Raise UserError if the class folders are not those expected; here any will do.

        ``from_list`` tells that the classes were given or listed rather than found.
        """

    def _adopt(self, layout: Layout, names: Sequence[str], labels: Sequence[int]) -> None:
        self._reader = layout.source.reader(layout.prefix, names)
        self._labels = np.asarray(labels, dtype=np.int64)
        self.samples = Samples(self._reader, self._labels)

    @property
    def names(self) -> PackedNames:
        """The images' names relative to ``base``."""
        return self._reader.names

    @property
    def labels(self) -> np.ndarray:
        """Class number of every image, int64 [N]."""
        return self._labels

    def __len__(self) -> int:
        return len(self._labels)

    def __getitem__(self, index: int) -> dict[str, Any]:
        position = range(len(self))[operator.index(index)]
        used, image = self._read_or_next(position)
        inputs = pil_to_tensor(image) if self.transforms is None else self.transforms(image)
        if not isinstance(inputs, torch.Tensor) or inputs.dtype != torch.uint8:
            raise SampleError(
                "the transforms of a data set must end in a uint8 tensor [3, H, W] "
                "(normalisation is the model's part), but gave "
                f"{getattr(inputs, 'dtype', type(inputs).__name__)}"
            )
        return {"inputs": inputs, "labels": int(self._labels[used]), "indices": position}

    def read_image(self, index: int) -> Image.Image:
        """Image ``index`` as 8-bit RGB, before transforms; raises SampleError naming a bad file."""
        position = range(len(self))[operator.index(index)]
        try:
            return self._decode(position)
        except (BadImage, OSError) as error:
            raise SampleError(f"bad image {self._shown(position)}: {reason(error)}") from error

    def _decode(self, position: int) -> Image.Image:
        return decode_rgb(self._reader.read(position), alpha=self.alpha, exif=self.exif)

    def _read_or_next(self, position: int) -> tuple[int, Image.Image]:
        """The image, or with on_error='skip' the next good one in the order of the data set."""
        for used in itertools.chain(range(position, len(self)), range(position)):
            try:
                return used, self._decode(used)
            except (BadImage, OSError) as error:
                if self.on_error == "stop":
                    raise SampleError(
                        f"bad image {self._shown(used)}: {reason(error)}; mend or remove it, or "
                        "train on the rest with on_error='skip'"
                    ) from error
                self._tell_replaced(used, reason(error))
        raise SampleError(f"{self.base}: not a single image can be read")

    def _tell_replaced(self, position: int, why: str) -> None:
        if position not in self._told:
            self._told.add(position)
            print_log(
                f"bad image {self._shown(position)}: {why}; the next good image takes its place",
                logger="current",
                level=logging.WARNING,
            )

    def _shown(self, position: int) -> str:
        return printable(self._reader.path(position))

    def check(self, decode: bool = False) -> list[str]:
        """'name: reason' of every bad image; without ``decode`` only headers and ends are read."""
        return [f"{printable(self.names[i])}: {why}" for i, why in bad_images(self._reader, decode)]

    def _check_first(self, layout: Layout, check: str, check_limit: int) -> None:
        if check == "auto":
            small, middling = len(self) <= check_limit, len(self) <= _HEADER_LIMIT
            check = "decode" if small else "header" if middling else "none"
            if check == "none":
                print_log(
                    f"{self.base}: {len(self):,} images are too many to be checked first "
                    "(check='header' or 'decode' does it; tools/prepare_data.py checks without "
                    "training)",
                    logger="current",
                )
        if check == "none":
            return
        bad = list(bad_images(self._reader, full=check == "decode"))
        if bad and self.on_error == "stop":
            lines = "\n".join(f"  {self._shown(i)}: {why}" for i, why in bad)
            raise UserError(
                f"{self.base}: {len(bad)} of {len(self)} images are bad:\n{lines}\nmend or "
                "remove them, or train on the rest with on_error='skip'"
            )
        if bad:
            self._leave_out(layout, bad)

    def _leave_out(self, layout: Layout, bad: list[tuple[int, str]]) -> None:
        self.skipped = [(self.names[i], why) for i, why in bad]
        keep = np.ones(len(self), dtype=bool)
        keep[[i for i, _ in bad]] = False
        if not keep.any():
            raise UserError(f"{self.base}: not a single one of {len(self)} images can be read")
        rest = np.flatnonzero(keep).tolist()
        self._adopt(layout, [self.names[i] for i in rest], self._labels[rest].tolist())
        told = "; ".join(f"{printable(name)} ({why})" for name, why in self.skipped)
        print_log(
            f"{self.base}: {len(self.skipped)} skipped: {told}", "current", level=logging.WARNING
        )
        empty = [name for name, n in self.class_counts().items() if not n]
        if empty:
            text = f"{self.base}: no readable image is left in {name_some(empty)}"
            print_log(text, "current", level=logging.WARNING)

    def _tell_ignored(self) -> None:
        if self.ignored:
            reasons = Counter(why for _, why in self.ignored)
            parts = [
                f"{why}: {count} ({name_some([n for n, w in self.ignored if w == why], 5)})"
                for why, count in reasons.items()
            ]
            print_log(
                f"{self.base}: left out: {'; '.join(parts)}", "current", level=logging.WARNING
            )

    def class_counts(self) -> dict[str, int]:
        """Number of images of every class."""
        counts = np.bincount(self._labels, minlength=len(self.classes))
        return dict(zip(self.classes, counts.tolist(), strict=True))

    def summary(self) -> str:
        """'N images in K classes, s skipped'."""
        return f"{len(self):,} images in {len(self.classes)} classes, {len(self.skipped)} skipped"

    def fingerprint(self) -> str:
        """SHA-256 over the classes and every image's name, class and size, in sorted order.

        Independent of where the data lies and of folder or archive. Of more than 100,000 images the
        sizes of 10,000 evenly spaced ones are taken, because each costs a disk access.
        """
        digest = hashlib.sha256()
        for name in self.classes:
            digest.update(name.encode("utf-8", "surrogateescape") + b"\0")
        order = sorted(range(len(self)), key=self.names.__getitem__)
        step = 1 if len(order) <= _SIZES_IN_FINGERPRINT else len(order) // 10_000
        for place, i in enumerate(order):
            size = self._size(i) if place % step == 0 else "-"
            row = f"{self.names[i]}\0{self._labels[i]}\0{size}\n"
            digest.update(row.encode("utf-8", "surrogateescape"))
        return digest.hexdigest()

    def _size(self, position: int) -> int | str:
        try:
            return self._reader.size(position)
        except OSError:
            return "missing"

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.base}: {self.summary()})"


def build_transforms(transforms: dict | Sequence | Callable | None) -> Callable | None:
    """A callable from a transform's config, a list of configs (applied in turn) or a callable."""
    if transforms is None or callable(transforms):
        return transforms
    if isinstance(transforms, dict):
        return TRANSFORMS.build(transforms)
    if isinstance(transforms, str) or not isinstance(transforms, Sequence):
        raise UserError(
            f"transforms={transforms!r} must be dict(type='polaformer.ClassificationTransform', "
            "…), a list of such, or a callable"
        )
    return _Chain([step for step in map(build_transforms, transforms) if step is not None])


class _Chain:
    def __init__(self, steps: list[Callable]) -> None:
        self.steps = steps

    def __call__(self, image: Any) -> Any:
        for step in self.steps:
            image = step(image)
        return image


def _one_of(field: str, value: str, allowed: Sequence[str]) -> None:
    if value not in allowed:
        hint = did_you_mean(value, allowed)
        raise UserError(
            f"{field}='{value}' is not known{'; ' + hint if hint else ''} (allowed: "
            f"{', '.join(allowed)})"
        )
