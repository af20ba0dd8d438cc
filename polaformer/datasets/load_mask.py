"""The step of a segmentation pipeline that reads the label image."""

from __future__ import annotations

from typing import Any

import numpy as np

from polaformer.datasets.decode import BadImage
from polaformer.datasets.integrity import SampleError, reason
from polaformer.datasets.label_maps import BadLabels, LabelCoding
from polaformer.datasets.load_image import UnreadableImage
from polaformer.datasets.sources import FolderReader, PackedNames, printable
from polaformer.registry import TRANSFORMS


class UnreadableMask(UnreadableImage):
    """A label image that is missing, damaged, or does not fit its classes or its image."""


@TRANSFORMS.register_module()
class LoadMask:
    """Reads ``seg_map_path`` as class indices: ``gt_seg_map`` uint8 [H, W], 255 is ignored.

    How values or colours stand for classes is ``label_coding``, which
    ``polaformer.SegmentationDataset`` gives with each sample; it is applied here and nowhere else.
    Samples of a data set without label images stay as they are.
    Raises SampleError naming the file if it does not decode, has a value or a colour that is not
    allowed, or another size than the image had when it was loaded (``ori_shape``).
    """

    def __call__(self, results: dict[str, Any]) -> dict[str, Any]:
        if "label_coding" in results and results.get("seg_map_path") is None:
            return results
        if "label_coding" not in results:
            path = printable(str(results.get("img_path")))
            raise SampleError(
                f"LoadMask: there is no label image for {path}; data_prefix=dict(img_path=…, "
                "seg_map_path=…) of polaformer.SegmentationDataset names the folders"
            )
        path = str(results["seg_map_path"])
        labels = read_labels(path, results["label_coding"])
        shape = results.get("ori_shape")
        if shape is not None and labels.shape != tuple(shape[:2]):
            raise UnreadableMask(
                f"bad label image {printable(path)}: it is {labels.shape[1]} x {labels.shape[0]} "
                f"pixels, but {printable(str(results.get('img_path')))} is {shape[1]} x {shape[0]}"
            )
        results["gt_seg_map"] = labels
        fields = results.setdefault("seg_fields", [])
        if "gt_seg_map" not in fields:
            fields.append("gt_seg_map")
        return results

    def __repr__(self) -> str:
        return "LoadMask()"


def read_labels(path: str, coding: LabelCoding) -> np.ndarray:
    """Class indices uint8 [H, W] of the label image at ``path``; SampleError names a bad file."""
    try:
        return coding.decode(FolderReader("", PackedNames([path])).read(0))
    except (BadImage, OSError) as error:
        unknown = coding.unknown(error.pixels) if isinstance(error, BadLabels) else []
        remedy = coding.remedy(unknown)
        raise UnreadableMask(
            f"bad label image {printable(path)}: {reason(error)}; {remedy}{'; ' if remedy else ''}"
            "mend or remove it, or train on the rest with on_error='skip'"
        ) from error
