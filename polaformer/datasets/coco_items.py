"""From an image's COCO annotations to the instances that mmdet's transforms take."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from polaformer.coco_format import NO_AREA, OUTSIDE, Id
from polaformer.coco_masks import covers_pixels

UNUSED = "object of a class that is not trained"
TINY = "box smaller than a pixel"
NO_MASK = "object without a usable mask, taken as a region to ignore"
CROWD = "region to ignore"


def mask_use(pipeline: Iterable[Any]) -> str:
    """What a pipeline does with masks: 'none', 'any', or 'polygons' if it takes nothing else.

    An empty pipeline may be used to look at everything, so it counts as 'optional'.
    """
    steps = list(_steps(pipeline))
    if not steps:
        return "optional"
    loading = [step for step in steps if _value(step, "with_mask", False)]
    if not loading:
        return "none"
    return "any" if all(_value(step, "poly2mask", True) for step in loading) else "polygons"


def _steps(pipeline: Any) -> Iterable[Any]:
    if isinstance(pipeline, (list, tuple)):
        for step in pipeline:
            yield from _steps(step)
    elif isinstance(pipeline, Mapping):
        yield pipeline
        for value in pipeline.values():
            if isinstance(value, (list, tuple, Mapping)):
                yield from _steps(value)
    elif callable(pipeline):
        yield pipeline
        yield from _steps(list(getattr(pipeline, "transforms", ())))


def _value(step: Any, name: str, default: Any) -> Any:
    return step.get(name, default) if isinstance(step, Mapping) else getattr(step, name, default)


class Instances:
    """Turns annotations into instances and counts what it leaves out.

    Args:
        labels: label of every category id that is trained.
        masks: see ``mask_use``.
    """

    def __init__(self, labels: Mapping[Id, int], masks: str) -> None:
        self.labels = labels
        self.masks = masks
        self.left_out: Counter[str] = Counter()
        self.per_class: Counter[int] = Counter()

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
                self.left_out[UNUSED] += 1
                continue
            box = self._clipped(annotation["bbox"], size)
            if box is None:
                continue
            ignored = bool(annotation["iscrowd"] or annotation.get("ignore") in (1, True, "1"))
            one = {"bbox": box, "bbox_label": label, "ignore_flag": int(ignored)}
            if self.masks != "none":
                self._mask(one, annotation["segmentation"], size)
            if one["ignore_flag"]:
                self.left_out[CROWD] += ignored
            else:
                self.per_class[label] += 1
            found.append(one)
        return found

    def _clipped(self, box: list[float], size: tuple[int, int] | None) -> list[float] | None:
        x, y, w, h = box
        x1, y1, x2, y2 = max(x, 0.0), max(y, 0.0), x + w, y + h
        if size is not None:
            x2, y2 = min(x2, float(size[0])), min(y2, float(size[1]))
        if x2 - x1 >= 1 and y2 - y1 >= 1:
            return [x1, y1, x2, y2]
        if x2 <= x1 or y2 <= y1:
            self.left_out[OUTSIDE if w > 0 and h > 0 else NO_AREA] += 1
        else:
            self.left_out[TINY] += 1
        return None

    def _mask(self, one: dict[str, Any], mask: Any, size: tuple[int, int] | None) -> None:
        usable = mask is not None and covers_pixels(mask, size)
        if usable and self.masks == "polygons":
            usable = isinstance(mask, list)
        if usable:
            one["mask"] = mask
        elif self.masks != "optional":
            x1, y1, x2, y2 = one["bbox"]
            one["mask"] = [[x1, y1, x2, y1, x2, y2, x1, y2]]
            if not one["ignore_flag"]:
                self.left_out[NO_MASK] += 1
                one["ignore_flag"] = 1
