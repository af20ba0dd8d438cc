"""From an image's COCO annotations to the instances that mmdet's transforms take."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from polaformer.coco.format import OUTSIDE, Id
from polaformer.coco.masks import extent

UNUSED = "object of a category that is no class"
TINY = "box smaller than a pixel"
NO_MASK = "object without a usable mask, now a region to ignore"
_SMALL_SIDE, _SMALL_AREA = 4, 16


class Instances:
    """Turns annotations into instances and counts what it meets.

    Args:
        labels: label of every category id that is trained.
        masks: see ``coco_pipeline.mask_use``.
    """

    def __init__(self, labels: Mapping[Id, int], masks: str) -> None:
        self.labels = labels
        self.masks = masks
        self.odd: Counter[str] = Counter()
        self.unused: Counter[Id] = Counter()

    def of(
        self, annotations: Iterable[Mapping[str, Any]], size: tuple[int, int] | None
    ) -> list[dict[str, Any]]:
        """dict(bbox=[x1, y1, x2, y2], bbox_label, ignore_flag[, mask]) of one image's annotations.

        Boxes are clipped to the picture of ``size`` = (width, height) where that is known.
        """
        found = []
        for annotation in annotations:
            label = self.labels.get(annotation["category_id"])
            if label is None:
                self.unused[annotation["category_id"]] += 1
                continue
            box = self._clipped(annotation["bbox"], size)
            if box is None:
                continue
            ignored = annotation["iscrowd"] == 1 or annotation.get("ignore") in (1, "1")
            one = {"bbox": box, "bbox_label": label, "ignore_flag": int(ignored)}
            if self.masks != "none":
                self._add_mask(one, annotation, size)
            found.append(one)
        return found

    def _clipped(self, box: list[float], size: tuple[int, int] | None) -> list[float] | None:
        x, y, w, h = box
        x1, y1, x2, y2 = max(x, 0.0), max(y, 0.0), x + w, y + h
        if size is not None:
            x2, y2 = min(x2, float(size[0])), min(y2, float(size[1]))
        if x2 - x1 >= 1 and y2 - y1 >= 1:
            return [x1, y1, x2, y2]
        self.odd[OUTSIDE if x2 <= x1 or y2 <= y1 else TINY] += 1
        return None

    def _add_mask(
        self, one: dict[str, Any], annotation: Mapping[str, Any], size: tuple[int, int] | None
    ) -> None:
        mask = annotation["segmentation"]
        if mask is not None and self._usable(mask, annotation["area"], size):
            one["mask"] = mask
        elif self.masks != "optional":
            x1, y1, x2, y2 = one["bbox"]
            one["mask"] = [[x1, y1, x2, y1, x2, y2, x1, y2]]
            self.odd[NO_MASK] += not one["ignore_flag"]
            one["ignore_flag"] = 1

    def _usable(self, mask: Any, area: float, size: tuple[int, int] | None) -> bool:
        if isinstance(mask, dict):
            fits = size is None or tuple(mask["size"]) == (size[1], size[0])
            return fits and self.masks != "polygons"
        across, down = extent(mask, size)
        if min(across, down) >= _SMALL_SIDE and area >= _SMALL_AREA:
            return True
        return across > 0 and down > 0 and (size is None or _draws_pixels(mask, size))


def _draws_pixels(polygons: list[list[float]], size: tuple[int, int]) -> bool:
    from pycocotools import mask as drawing

    runs = drawing.frPyObjects(polygons, size[1], size[0])
    return bool(drawing.area(drawing.merge(runs)) > 0)
