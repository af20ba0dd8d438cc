"""Semantic segmentation data: a folder of images and one of label images."""

from __future__ import annotations

import hashlib
import logging
import operator
import os
import pickle
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from mmengine.logging import print_log

from polaformer.datasets.class_sets import IGNORED, Color, class_set, suffixes_of
from polaformer.datasets.coco_pictures import Pictures, existing_folder
from polaformer.datasets.coco_pipeline import shortest_edge, vanishing
from polaformer.datasets.decode import BadImage, orientation, turn_is_open, upright_size
from polaformer.datasets.fetching import FetchingDataset, file_size, one_of
from polaformer.datasets.integrity import Size, check_depth
from polaformer.datasets.label_coding import choose_palette, make_coding
from polaformer.datasets.load_mask import read_labels
from polaformer.datasets.mask_checks import (
    TURNED,
    MaskFindings,
    absent_classes,
    look_at_masks,
    lossy_files,
    nothing_to_learn,
    numbering_hint,
    unknown_values,
)
from polaformer.datasets.mask_messages import left_out, lines_of, unpaired
from polaformer.datasets.mask_pairs import Pairs, find_pairs
from polaformer.datasets.mask_pipeline import check_mask_loading, exif_is_chosen
from polaformer.datasets.segmentation_options import checked_folders, named_classes
from polaformer.datasets.sources import FolderReader, PackedNames
from polaformer.errors import UserError
from polaformer.registry import DATASETS

_SIZES_IN_FINGERPRINT = 100_000
_REMEDY = "mend or remove them, or train on the rest with on_error='skip'"


@DATASETS.register_module()
class SegmentationDataset(FetchingDataset):
    """Images with a label image each, paired by name.

    An item before the pipeline is dict(img_path, seg_map_path, img_id, height, width, seg_fields,
    reduce_zero_label, label_coding, sample_idx): ``img_id`` is the path below the image folder
    without suffix, height and width are the label image's, ``label_coding`` is what
    ``polaformer.LoadMask`` needs. Class indices are 0..254, 255 is ignored. A value (or colour)
    that is neither a class nor ignored is an error that names the file. Nothing is written to disk.

    Args:
        data_root: folder that the other paths count from.
        data_prefix: dict(img_path=, seg_map_path=), the two folders; sub-folders are mirrored.
            seg_map_path=None, in ``test_mode`` only, means that there are no label images.
        ann_file: list of the images to use, one stem a line; '' uses the whole folder.
        img_suffix: what the images' names end in, without which they are the label images'
            ('_leftImg8bit.png'); None is what the class set says, for others every image file and
            its name without the ending, as '' does.
        seg_map_suffix: the same of the label images.
        classes: names in order, or 'ade20k', 'cityscapes', 'voc2012', 'coco_stuff', which bring
            names, colours, and how their files are named and numbered.
        palette: (red, green, blue) of each class for drawing.
        label_values: value of each class in the label images, or several values that become one
            class; without it the value is the class index.
        label_colors: colour of each class where the label images are coloured.
        reduce_zero_label: True where 0 is no class and class k has value k + 1; None is what the
            class set says, False for own names.
        ignore_values: further values that are ignored, or 'rest' for all that are no class.
        ignore_colors: the same of colours.
        metainfo: ``metainfo=dict(classes=…)`` means the same; further entries are passed on.
        pipeline: transforms or their configs.
        on_error: 'stop' raises UserError naming every bad file; 'skip' leaves samples out.
        check: what is looked at before training: 'decode' every file and verify the values of
            every label image, 'header' (sizes, whether files are whole), 'none' or None, or 'auto':
            decode up to ``check_limit`` images, headers up to 200,000. Values are verified again
            whenever a label image is loaded.
        test_mode: an unreadable sample or a pipeline that gives None is an error.
    """

    _fully_initialized: bool = False

    def __init__(
        self,
        data_root: str | None = "",
        data_prefix: Mapping[str, str | None] | None = None,
        ann_file: str = "",
        img_suffix: str | None = None,
        seg_map_suffix: str | None = None,
        classes: Sequence[str] | str | None = None,
        palette: Sequence[Color] | None = None,
        label_values: Sequence[int | Sequence[int]] | None = None,
        label_colors: Sequence[Color] | None = None,
        reduce_zero_label: bool | None = None,
        ignore_values: Sequence[int] | str = (),
        ignore_colors: Sequence[Color] | str = (),
        metainfo: Mapping[str, Any] | None = None,
        pipeline: Sequence[Mapping[str, Any] | Callable] = (),
        on_error: str = "stop",
        check: str | None = "auto",
        check_limit: int = 25_000,
        test_mode: bool = False,
    ) -> None:
        one_of("on_error", on_error, ("stop", "skip"))
        check = "none" if check is None else check
        one_of("check", check, ("auto", "decode", "header", "none"))
        known, names = named_classes(classes, metainfo)
        self.on_error = on_error
        self.check = check
        self.check_limit = check_limit
        self.img_suffix, self.seg_map_suffix = suffixes_of(known, img_suffix, seg_map_suffix)
        self.skipped: list[tuple[str, str]] = []
        self.coding = make_coding(
            names,
            known,
            label_values=label_values,
            label_colors=label_colors,
            reduce_zero_label=reduce_zero_label,
            ignore_values=ignore_values,
            ignore_colors=ignore_colors,
            converted="trainids" in str(seg_map_suffix).lower(),
        )
        if palette is None:
            palette = (metainfo or {}).get("palette")
        colors = choose_palette(names, known, palette, label_colors)
        check_mask_loading(pipeline, test_mode)
        self._edge = shortest_edge(pipeline)
        self._exif_is_open = not exif_is_chosen(pipeline)
        self._turned = 0
        self._given_file = os.path.expanduser(ann_file)
        self._told: set[int] = set()
        self._fingerprint: str | None = None
        self._findings = MaskFindings()
        super().__init__(
            ann_file=self._given_file,
            metainfo={**(metainfo or {}), "classes": names, "palette": colors},
            data_root=os.path.expanduser(data_root or ""),
            data_prefix=checked_folders(data_prefix, test_mode),
            pipeline=list(pipeline),
            test_mode=test_mode,
        )

    @staticmethod
    def known_classes(name: str) -> tuple[str, ...]:
        """The names that ``classes=name`` stands for; raises UserError for an unknown set."""
        return class_set(name).classes

    @property
    def classes(self) -> tuple[str, ...]:
        """The names of the class indices."""
        return self._metainfo["classes"]

    @property
    def where(self) -> str:
        return self.ann_file or self._image_folder

    def full_init(self) -> None:
        """Find the pairs and check the files, once; called on building."""
        if self._fully_initialized:
            return
        self._image_folder = existing_folder(self.data_prefix["img_path"] or self.data_root or ".")
        masks = self.data_prefix.get("seg_map_path")
        self._mask_folder = (
            None if masks is None else existing_folder(masks or self.data_root or ".")
        )
        if not os.path.isfile(self.ann_file) and os.path.isfile(self._given_file):
            raise UserError(
                f"ann_file: there is no file {self.ann_file}; {self._given_file} does exist, but "
                f"ann_file counts from data_root='{self.data_root}'"
            )
        pairs = find_pairs(
            self._image_folder,
            self._mask_folder,
            self.img_suffix,
            self.seg_map_suffix,
            self.ann_file,
        )
        self._leave_out_lonely(pairs)
        sizes = self._check_files(pairs)
        self._pack(pairs, sizes)
        self._fully_initialized = True
        print_log(f"{self.where}: {self.summary()}", logger="current")
        self._warn(pairs)

    def _leave_out_lonely(self, pairs: Pairs) -> None:
        if pairs.alone and self.on_error == "stop":
            raise UserError(f"{self.where}: {unpaired(pairs.alone)}")
        self.skipped += pairs.alone

    def _check_files(self, pairs: Pairs) -> list[Size | None]:
        """Sizes of the label images; what is bad leaves ``pairs``, or UserError."""
        count = len(pairs.images)
        depth = check_depth(self.check, self.check_limit, count, self.where)
        if depth == "none":
            return [None] * count
        found = MaskFindings(sizes=[None] * count)
        if self._mask_folder is not None:
            reader = FolderReader(self._mask_folder, PackedNames(pairs.masks))
            found = look_at_masks(reader, self.coding, depth == "decode")
        images = Pictures(self._image_folder, pairs.images)
        turned: dict[int, int] = {}

        def see(index: int, start: bytes) -> None:
            turned[index] = orientation(start)

        told = "is the size of its label image"
        unread = images.bad(depth, 0, found.sizes, self.where, told, see)
        if self._mask_folder is not None and self._exif_is_open:
            self._turned = sum(
                turn_is_open(turn, found.turned.get(i, 1), found.sizes[i])
                for i, turn in turned.items()
            )
        bad = [(i, os.path.join(self._mask_folder or "", pairs.masks[i]), w) for i, w in found.bad]
        bad += [(i, images.path(i), why) for i, why in unread]
        bad += [(i, images.path(i), why) for i, why in self._too_thin(found.sizes)]
        self._findings = found
        self._refuse(bad, count, found)
        left = {i for i, _, _ in bad}
        self.skipped += [(path, why) for _, path, why in sorted(bad)]
        for names in (pairs.stems, pairs.images, pairs.masks):
            names[:] = [name for i, name in enumerate(names) if i not in left]
        return [size for i, size in enumerate(found.sizes) if i not in left]

    def _too_thin(self, sizes: Sequence[Size | None]) -> list[tuple[int, str]]:
        """(index, reason) of pictures of which the pipeline's resizing would leave nothing."""
        edge = self._edge
        reasons = (vanishing(size, edge) if size and edge else None for size in sizes)
        return [(i, why) for i, why in enumerate(reasons) if why]

    def _refuse(self, bad: list[tuple[int, str, str]], count: int, found: MaskFindings) -> None:
        """Raise UserError for bad files and for label images that say nothing."""
        hints = unknown_values(found, self.coding), numbering_hint(found, self.coding)
        hint = "\n".join(text for text in hints if text)
        every = len({i for i, _, _ in bad}) == count
        if bad and (self.on_error == "stop" or every):
            lines = lines_of([(path, why) for _, path, why in sorted(bad)])
            remedy = "not a single sample is good" if every else _REMEDY
            raise UserError(
                f"{self.where}: bad files ({len(bad)}) of {count} images with label images:\n"
                f"{lines}\n" + (f"{hint}\n" if hint else "") + remedy
            )
        nothing = nothing_to_learn(found.pixels, count - len(found.bad), self.coding)
        if found.decoded and nothing and not self.test_mode:
            raise UserError(f"{self._mask_folder}: {nothing}")

    def _pack(self, pairs: Pairs, sizes: Sequence[Size | None]) -> None:
        """All items in one buffer, which workers share."""
        packed = []
        for i, stem in enumerate(pairs.stems):
            item = {"img_path": os.path.join(self._image_folder, pairs.images[i]), "img_id": stem}
            if self._mask_folder is not None:
                item["seg_map_path"] = os.path.join(self._mask_folder, pairs.masks[i])
            packed.append(pickle.dumps((item, sizes[i]), protocol=4))
        self.data_address = np.cumsum([len(one) for one in packed], dtype=np.int64)
        self.data_bytes = np.frombuffer(b"".join(packed), dtype=np.uint8)

    def _warn(self, pairs: Pairs) -> None:
        told = list(pairs.notes)
        absent = absent_classes(self._findings, self.coding)
        lossy = lossy_files(self._findings)
        told += [lossy] if lossy else []
        told += [f"{self._turned:,} {TURNED}"] if self._turned else []
        if absent and self.test_mode:
            text = f"{self.where}: {absent}; a prediction of them counts as IoU 0"
            print_log(text, logger="current")
        elif absent:
            told.append(absent)
        if self.skipped:
            told.append(left_out(self.skipped))
            hints = (
                unknown_values(self._findings, self.coding),
                numbering_hint(self._findings, self.coding),
            )
            told += [hint for hint in hints if hint]
        if told:
            text = f"{self.where}: {'; '.join(told)}"
            print_log(text, logger="current", level=logging.WARNING)

    def get_data_info(self, idx: int) -> dict[str, Any]:
        """The item of image ``idx``; the label image's size is read from its file if need be."""
        position = range(len(self))[operator.index(idx)]
        item, size = self._stored(position)
        if size is None and "seg_map_path" in item:
            size = _size_of(item["seg_map_path"])
        width, height = size or (None, None)
        return {
            **item,
            "height": height,
            "width": width,
            "seg_fields": [],
            "reduce_zero_label": False,
            "label_coding": self.coding,
            "sample_idx": position,
        }

    def _stored(self, position: int) -> tuple[dict[str, Any], Size | None]:
        start = 0 if position == 0 else int(self.data_address[position - 1])
        return pickle.loads(self.data_bytes[start : int(self.data_address[position])].tobytes())

    def read_mask(self, index: int) -> np.ndarray:
        """Class indices uint8 [H, W] of image ``index``, 255 ignored; SampleError if it is bad."""
        item, _ = self._stored(range(len(self))[operator.index(index)])
        if "seg_map_path" not in item:
            raise UserError(f"{self.where}: there are no label images (seg_map_path=None)")
        return read_labels(item["seg_map_path"], self.coding)

    def summary(self) -> str:
        """'N images with label images of K classes', the ignored share, and what was left out."""
        what = "images" if self._mask_folder is None else "images with label images"
        parts = [f"{len(self):,} {what} of {len(self.classes)} classes"]
        pixels = self._findings.pixels
        if self._findings.decoded and pixels[IGNORED]:
            parts.append(f"{pixels[IGNORED] / pixels.sum():.1%} of the pixels ignored")
        if self.skipped:
            parts.append(f"{len(self.skipped):,} files skipped")
        return ", ".join(parts)

    def fingerprint(self) -> str:
        """SHA-256 over classes, coding and every image's name and its files' sizes in bytes.

        Independent of where the data lie. Of more than 100,000 images the sizes of 10,000 evenly
        spaced ones are taken, because each costs disk accesses.
        """
        if self._fingerprint is None:
            digest = hashlib.sha256("\0".join((*self.classes, self.coding.rule)).encode())
            step = 1 if len(self) <= _SIZES_IN_FINGERPRINT else len(self) // 10_000
            for i in range(len(self)):
                item, _ = self._stored(i)
                paths = [item[key] for key in ("img_path", "seg_map_path") if key in item]
                sizes = [file_size(path) for path in paths] if i % step == 0 else ["-"]
                row = "\0".join(map(str, (item["img_id"], *sizes)))
                digest.update(f"{row}\n".encode("utf-8", "surrogateescape"))
            self._fingerprint = digest.hexdigest()
        return self._fingerprint

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.where}: {self.summary()})"


def _size_of(path: str) -> Size | None:
    try:
        return upright_size(FolderReader("", PackedNames([path])).read(0))
    except (BadImage, OSError):
        return None
