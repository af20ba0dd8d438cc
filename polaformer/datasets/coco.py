"""Detection and instance segmentation data in COCO's format."""

from __future__ import annotations

import hashlib
import itertools
import logging
import os
import pickle
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from mmengine.logging import print_log

from polaformer.coco.format import CocoFile, read_coco
from polaformer.coco.reading import no_garbage_collection
from polaformer.datasets.coco_classes import asked_classes, choose_categories
from polaformer.datasets.coco_items import Instances
from polaformer.datasets.coco_pictures import Pictures, checked_prefix, image_folder
from polaformer.datasets.coco_pipeline import mask_use, shortest_edge, vanishing
from polaformer.datasets.coco_report import oddities, why_no_object
from polaformer.datasets.fetching import FetchingDataset, file_size, one_of
from polaformer.datasets.layout import name_some
from polaformer.datasets.sources import printable
from polaformer.errors import UserError
from polaformer.registry import DATASETS

_SIZES_IN_FINGERPRINT = 100_000


@DATASETS.register_module()
class CocoDataset(FetchingDataset):
    """Images with boxes, and masks where the pipeline loads them, from a COCO annotation file.

    An item before the pipeline is dict(img_path, img_id, height, width, sample_idx, instances),
    an instance dict(bbox=[x1, y1, x2, y2], bbox_label, ignore_flag[, mask]). What
    ``polaformer.coco.format.read_coco`` finds odd is left out and counted. Boxes are clipped to
    the picture; those under a pixel wide or high are left out, as in mmdet (evaluation takes the
    file's own boxes, all of them). Crowd regions get ignore_flag=1, and so do objects without a
    usable mask where the pipeline loads masks. Nothing is written to disk. Where a transform fails
    SampleError names the picture and its size. A ``ConcatDataset`` of several needs
    ignore_keys=['ann_file'], and 'category_ids' if these differ.

    Args:
        ann_file: the annotation file, absolute or below ``data_root``.
        data_root: folder that the other paths count from.
        data_prefix: dict(img=folder of the images).
        classes: names that choose and order the categories; None takes all in the order of their
            ids. A name that the file does not have raises UserError; objects of other categories
            are left out and counted.
        metainfo: ``metainfo=dict(classes=…)`` means the same; further entries are passed on.
        pipeline: transforms or their configs.
        images_without_objects: 'use' them, or 'drop' them (not in ``test_mode``).
        min_size: leave out pictures whose shorter side has fewer pixels (not in ``test_mode``).
        on_error: 'stop' raises UserError naming every bad image file; 'skip' leaves them out.
        check: what is looked at before training: 'decode' every file, 'header' (and decode what
            has no end mark), 'none' or None, or 'auto': decode up to ``check_limit`` images,
            headers up to 200,000. A picture that has not the recorded width and height is bad, too,
            and always one so thin that the pipeline's resizing leaves nothing of a side.
        test_mode: every image is used, and a pipeline that gives None is an error.
    """

    _fully_initialized: bool = False

    def __init__(
        self,
        ann_file: str,
        data_root: str | None = "",
        data_prefix: Mapping[str, str] | None = None,
        classes: Sequence[str] | None = None,
        metainfo: Mapping[str, Any] | None = None,
        pipeline: Sequence[Mapping[str, Any] | Callable] = (),
        images_without_objects: str = "use",
        min_size: int = 0,
        on_error: str = "stop",
        check: str | None = "auto",
        check_limit: int = 20_000,
        test_mode: bool = False,
    ) -> None:
        one_of("images_without_objects", images_without_objects, ("use", "drop"))
        one_of("on_error", on_error, ("stop", "skip"))
        check = "none" if check is None else check
        one_of("check", check, ("auto", "decode", "header", "none"))
        self.images_without_objects = images_without_objects
        self.min_size = min_size
        self.on_error = on_error
        self.check = check
        self.check_limit = check_limit
        self.skipped: list[tuple[str, str]] = []
        self._asked = asked_classes(classes, metainfo)
        self._masks = mask_use(pipeline)
        self._edge = shortest_edge(pipeline)
        self._given_file = os.path.expanduser(ann_file)
        self._told: set[int] = set()
        self._fingerprint: str | None = None
        super().__init__(
            ann_file=self._given_file,
            metainfo=metainfo,
            data_root=os.path.expanduser(data_root or ""),
            data_prefix=checked_prefix(data_prefix),
            pipeline=list(pipeline),
            test_mode=test_mode,
        )

    def full_init(self) -> None:
        """Read the annotation file and check the images, once; called on building."""
        if self._fully_initialized:
            return
        with no_garbage_collection():
            odd = self._load(self._read())
        self._fully_initialized = True
        print_log(f"{self.ann_file}: {self.summary()}", logger="current")
        idle = [name for name, count in self.class_counts().items() if not count]
        if idle and not self.test_mode:
            odd.append(f"classes without an object: {name_some(idle)}")
        if odd:
            text = f"{self.ann_file}: {'; '.join(odd)}"
            print_log(text, logger="current", level=logging.WARNING)

    def _load(self, coco: CocoFile) -> list[str]:
        classes, ids = choose_categories(coco, self._asked)
        self._metainfo.update(classes=classes, category_ids=ids, ann_file=str(coco.path))
        self._folder = image_folder(self.data_prefix, self.data_root)
        made = Instances({key: label for label, key in enumerate(ids)}, self._masks)
        self._collect(coco, made)
        return oddities(coco, made)

    def _read(self) -> CocoFile:
        try:
            return read_coco(self.ann_file)
        except UserError as error:
            if os.path.exists(self.ann_file) or not os.path.isfile(self._given_file):
                raise
            raise UserError(
                f"{error}; {self._given_file} does exist, but ann_file counts from data_root="
                f"'{self.data_root}'"
            ) from error

    @property
    def where(self) -> str:
        return self.ann_file

    @property
    def classes(self) -> tuple[str, ...]:
        """The names of the labels."""
        return self._metainfo["classes"]

    def _collect(self, coco: CocoFile, made: Instances) -> None:
        """Choose the images and pack their items into one buffer, which workers share."""
        pictures = Pictures(self._folder, [image["file_name"] for image in coco.images])
        self._counts: Counter[str] = Counter()
        packed: list[bytes] = []
        labels: list[list[int]] = []
        kept: list[int] = []
        thin: dict[int, str] = {}
        for i, image in enumerate(coco.images):
            size = (image["width"], image["height"]) if image["width"] else pictures.size(i)
            instances = made.of(coco.by_image[image["id"]], size)
            found = [one["bbox_label"] for one in instances if not one["ignore_flag"]]
            if self._leave_out(size, found):
                continue
            if size and self._edge and (why := vanishing(size, self._edge)):
                thin[len(kept)] = why
            width, height = size or (None, None)
            item = {
                "img_path": pictures.path(i),
                "img_id": image["id"],
                "height": height,
                "width": width,
                "instances": instances,
            }
            packed.append(pickle.dumps(item, protocol=4))
            labels.append(found)
            kept.append(i)
        if not kept:
            raise UserError(f"{self.ann_file}: no image is left: {self._why_none(coco, made)}")
        good = self._good(pictures, kept, coco, thin)
        self._count([labels[i] for i in good])
        if not self.test_mode and not self._objects.any():
            raise UserError(
                f"{self.ann_file}: not a single object of the classes to train on: "
                f"{why_no_object(coco, made)}"
            )
        packed = [packed[i] for i in good]
        self.data_address = np.cumsum([len(item) for item in packed], dtype=np.int64)
        self.data_bytes = np.frombuffer(b"".join(packed), dtype=np.uint8)

    def _leave_out(self, size: tuple[int, int] | None, labels: list[int]) -> bool:
        if self.test_mode:
            return False
        small = size is not None and min(size) < self.min_size
        empty = not labels and self.images_without_objects == "drop"
        self._counts["small"] += small
        self._counts["dropped"] += empty and not small
        return small or empty

    def _why_none(self, coco: CocoFile, made: Instances) -> str:
        if not coco.images:
            return "the file lists none"
        small = f"{self._counts['small']} are smaller than {self.min_size} pixels"
        dropped = f"{self._counts['dropped']} are without objects ({why_no_object(coco, made)})"
        return f"of {len(coco.images)} in the file, {small} and {dropped}"

    def _good(
        self, pictures: Pictures, kept: list[int], coco: CocoFile, thin: Mapping[int, str]
    ) -> list[int]:
        """Positions in ``kept`` of the usable images; with on_error='stop' all, or UserError."""
        chosen = Pictures(self._folder, [pictures.reader.names[i] for i in kept])
        recorded = [(coco.images[i]["width"], coco.images[i]["height"]) for i in kept]
        sizes = [None if size[0] is None else size for size in recorded]
        unread = chosen.bad(self.check, self.check_limit, sizes, self.ann_file)
        bad = sorted({**thin, **dict(unread)}.items())
        if bad and (self.on_error == "stop" or len(bad) == len(kept)):
            remedy = "mend or remove them, or train on the rest with on_error='skip'"
            hint = remedy if len(bad) < len(kept) else "not a single image is good"
            text = chosen.complaint(bad, self.data_root)
            raise UserError(f"{self.ann_file}: {text}\n{hint}")
        self.skipped = [(chosen.reader.names[i], why) for i, why in bad]
        if bad:
            told = "; ".join(f"{printable(name)} ({why})" for name, why in self.skipped)
            text = f"{self.ann_file}: {len(bad)} skipped: {told}"
            print_log(text, logger="current", level=logging.WARNING)
        left = {i for i, _ in bad}
        return [i for i in range(len(kept)) if i not in left]

    def _count(self, labels: Sequence[list[int]]) -> None:
        self._counts["without"] = sum(not found for found in labels)
        flat = np.fromiter(itertools.chain.from_iterable(labels), dtype=np.int64)
        self._objects = np.bincount(flat, minlength=len(self.classes))

    def class_counts(self) -> dict[str, int]:
        """Number of objects of every class."""
        return dict(zip(self.classes, self._objects.tolist(), strict=True))

    def summary(self) -> str:
        """'N images used, E without objects, M objects of K classes', and what was left out."""
        counts = self._counts
        parts = [
            f"{len(self):,} images used",
            f"{counts['without']:,} without objects",
            f"{self._objects.sum():,} objects of {len(self.classes)} classes",
        ]
        if counts["dropped"]:
            parts.append(f"{counts['dropped']:,} images without objects dropped")
        if counts["small"]:
            parts.append(f"{counts['small']:,} images under {self.min_size} pixels left out")
        if self.skipped:
            parts.append(f"{len(self.skipped):,} skipped")
        return ", ".join(parts)

    def get_cat_ids(self, idx: int) -> list[int]:
        """Labels of the instances of image ``idx``, which mmdet's wrappers balance by."""
        return [one["bbox_label"] for one in self.get_data_info(idx)["instances"]]

    def fingerprint(self) -> str:
        """SHA-256 over the classes and every image's name, id, size in bytes and instances.

        Independent of where the data lie. Of more than 100,000 images the sizes of 10,000 evenly
        spaced ones are taken, because each costs a disk access.
        """
        if self._fingerprint is None:
            digest = hashlib.sha256("\0".join(self.classes).encode())
            step = 1 if len(self) <= _SIZES_IN_FINGERPRINT else len(self) // 10_000
            for i in range(len(self)):
                info = self.get_data_info(i)
                name = os.path.relpath(info["img_path"], self._folder)
                size = file_size(info["img_path"]) if i % step == 0 else "-"
                row = f"{name}\0{info['img_id']}\0{size}\n"
                digest.update(row.encode("utf-8", "surrogateescape"))
                for one in info["instances"]:
                    _digest_instance(digest, one)
            self._fingerprint = digest.hexdigest()
        return self._fingerprint

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.ann_file}: {self.summary()})"


def _digest_instance(digest: Any, one: Mapping[str, Any]) -> None:
    numbers = (*one["bbox"], one["bbox_label"], one["ignore_flag"])
    digest.update(np.asarray(numbers, dtype="<f8").tobytes())
    mask = one.get("mask", ())
    if isinstance(mask, Mapping):
        digest.update(f"{mask['size']}{mask['counts']}".encode())
        return
    for polygon in mask:
        digest.update(np.asarray(polygon, dtype="<f8").tobytes())
