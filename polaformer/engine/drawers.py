"""How the predictions of a task are kept while it is evaluated, and drawn afterwards."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
from PIL import Image

from polaformer.coco.format import read_coco
from polaformer.visualization.detections import (
    MAX_OBJECTS,
    Scene,
    Thing,
    draw_detections,
    mask_of,
    shrink,
)
from polaformer.visualization.segmentations import (
    SegmentedScene,
    draw_segmentations,
    image_iou,
    shrink_map,
)


@dataclass
class Shown:
    """One image of the choice: what the data set says of it, and its pixels, made small."""

    info: dict[str, Any]
    image: Image.Image
    size: tuple[int, int]
    truth: np.ndarray | None = None  # class map [h, w], made small, where the data set reads one


class Drawer(Protocol):
    """How predictions of one task are kept and drawn."""

    def knows(self, sample: Any) -> bool:
        """Whether a prediction is of this task."""

    def keep(self, sample: Any) -> Any:
        """What is needed of a prediction to draw it later, small and in main memory."""

    def draw(
        self, shown: Sequence[tuple[Shown, Any]], meta: Mapping[str, Any], out: Path, title: str
    ) -> None:
        """Write the picture; ``meta`` is the data set's ``metainfo``."""


class Kept(NamedTuple):
    """What is kept of one prediction: objects, a note about the others, whether masks exist."""

    things: list[Thing]
    note: str
    masks: bool


@dataclass
class DetectionDrawer:
    """Boxes, and masks where there are any, of ``pred_instances``; truth from the data set."""

    score_thr: float

    def knows(self, sample: Any) -> bool:
        """Whether there are predicted instances."""
        return entry(sample, "pred_instances") is not None

    def keep(self, sample: Any) -> Kept:
        """The best objects as far as they reach the threshold, and a note about the others."""
        found = entry(sample, "pred_instances")
        boxes = _array(entry(found, "bboxes")).reshape(-1, 4)
        scores = _array(entry(found, "scores")).ravel()
        labels = _array(entry(found, "labels")).ravel().astype(int)
        masks = entry(found, "masks")
        order = np.argsort(-scores, kind="stable")
        good = [int(i) for i in order if scores[i] >= self.score_thr][:MAX_OBJECTS]
        things = [
            Thing(
                _box(boxes[i]),
                int(labels[i]),
                "",
                float(scores[i]),
                None if masks is None else _small_mask(masks[i]),
            )
            for i in good
        ]
        above = int((scores >= self.score_thr).sum())
        note = f"score {self.score_thr:g} or more"
        if above > len(good):
            note = f"the best of {above}"
        elif not good:
            note = f"best score {scores.max():.2f}" if scores.size else "none of any score"
        return Kept(things, note, masks is not None)

    def draw(
        self, shown: Sequence[tuple[Shown, Any]], meta: Mapping[str, Any], out: Path, title: str
    ) -> None:
        """Write every image twice, with true and with predicted objects."""
        classes = meta.get("classes", ())
        masks = any(kept.masks for _, kept in shown)
        scenes = []
        for item, (things, note, _) in shown:
            named = [replace(thing, name=_name(thing.label, classes)) for thing in things]
            name = Path(str(item.info.get("img_path", ""))).name
            truth = _truth(item, meta, masks)
            scenes.append(Scene(item.image, item.size, named, truth, name, note))
        draw_detections(scenes, out, title=title)


class KeptMaps(NamedTuple):
    """What is kept of one prediction: class maps [h, w], made small, and the IoU of the image."""

    predicted: np.ndarray
    truth: np.ndarray | None
    iou: float | None


class SegmentationDrawer:
    """Class maps of ``pred_sem_seg``; truth from the data sample, or else from the data set."""

    def knows(self, sample: Any) -> bool:
        """Whether there is a predicted class map."""
        return entry(sample, "pred_sem_seg") is not None

    def keep(self, sample: Any) -> KeptMaps:
        """The maps, made small, and the IoU of the whole ones."""
        predicted = _class_map(entry(sample, "pred_sem_seg"))
        held = entry(sample, "gt_sem_seg")
        truth = None if held is None else _class_map(held)
        if truth is None or truth.shape != predicted.shape:
            return KeptMaps(shrink_map(predicted), None, None)
        return KeptMaps(shrink_map(predicted), shrink_map(truth), image_iou(truth, predicted))

    def draw(
        self, shown: Sequence[tuple[Shown, Any]], meta: Mapping[str, Any], out: Path, title: str
    ) -> None:
        """Write every image with its true and its predicted classes."""
        scenes = []
        for item, (predicted, truth, iou) in shown:
            if truth is None and item.truth is not None:
                truth = item.truth
                iou = image_iou(truth, predicted) if truth.shape == predicted.shape else None
            name = Path(str(item.info.get("img_path", ""))).name
            scenes.append(SegmentedScene(item.image, item.size, predicted, truth, name, iou))
        classes, palette = meta.get("classes") or (), meta.get("palette")
        draw_segmentations(scenes, out, classes=classes, palette=palette, title=title)


def _class_map(held: Any) -> np.ndarray:
    """The map [H, W] of class numbers of an entry of a data sample."""
    values = entry(held, "data")
    labels = _array(held if values is None else values)
    return labels.reshape(labels.shape[-2:])


def _segmentation(score_thr: float) -> Drawer:
    return SegmentationDrawer()


DRAWERS: list[Callable[[float], Drawer]] = [DetectionDrawer, _segmentation]
"""What makes the drawer of each task from the score below which nothing is drawn; the first that
knows a prediction draws it. A module in ``custom_imports`` may add its own."""


def _small_mask(mask: Any) -> np.ndarray | None:
    """One predicted mask, an array or run lengths, made small."""
    if isinstance(mask, Mapping):
        return mask_of(mask, (1, 1))
    return _array(shrink(mask)).astype(bool)


def _truth(item: Shown, meta: Mapping[str, Any], masks: bool) -> list[Thing] | None:
    """The true objects; masks that a data set does not load come from its annotation file."""
    instances = item.info.get("instances")
    if masks and meta.get("ann_file") and not any("mask" in one for one in instances or ()):
        instances = list(_from_file(meta, item.info["img_id"]))
    if instances is None:
        return None
    return [
        Thing(
            _box(instance["bbox"]),
            int(instance["bbox_label"]),
            _name(int(instance["bbox_label"]), meta.get("classes", ())),
            mask=mask_of(instance.get("mask"), item.size),
            crowd=bool(instance.get("ignore_flag")),
        )
        for instance in instances
    ]


def _from_file(meta: Mapping[str, Any], image_id: Any) -> Iterator[dict[str, Any]]:
    labels = {category: label for label, category in enumerate(meta["category_ids"])}
    for one in read_coco(meta["ann_file"]).by_image.get(image_id, ()):
        if one["category_id"] in labels:
            x, y, width, height = one["bbox"]
            yield {
                "bbox": [x, y, x + width, y + height],
                "bbox_label": labels[one["category_id"]],
                "mask": one["segmentation"],
                "ignore_flag": one["iscrowd"],
            }


def entry(holder: Any, name: str) -> Any:
    """An entry of a data sample or of a dict; None where it has none."""
    return holder.get(name) if hasattr(holder, "get") else getattr(holder, name, None)


def _array(value: Any) -> np.ndarray:
    if hasattr(value, "detach"):
        value = value.detach().cpu()
        return value.numpy() if value.dtype.itemsize != 2 else value.float().numpy()
    return np.asarray(value)


def _box(values: Any) -> tuple[float, float, float, float]:
    x1, y1, x2, y2 = (float(value) for value in values)
    return x1, y1, x2, y2


def _name(label: int, classes: Sequence[str]) -> str:
    return str(classes[label]) if 0 <= label < len(classes) else f"class {label}"
