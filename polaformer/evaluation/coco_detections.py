"""What a detector found in one picture, kept small: boxes, and masks as run lengths."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from polaformer.errors import UserError


@dataclass(slots=True)
class Detections:
    """The detections of one image, in the order in which the model gave them.

    ``boxes`` are x1, y1, x2, y2 in pixels of the picture as it is on disk, ``size`` is its height
    and width, ``masks`` are compressed run lengths (None for a model without masks).
    ``path`` is the picture's. ``non_finite`` counts detections left out because a number of theirs
    is not finite.
    """

    image_id: Any
    size: tuple[int, int] | None
    boxes: np.ndarray
    scores: np.ndarray
    labels: np.ndarray
    masks: list[dict] | None
    mask_scores: np.ndarray
    non_finite: int
    path: str | None = None

    def rows(self, kind: str, image_id: Any, category_ids: Sequence[Any]) -> list[dict[str, Any]]:
        """Entries of a COCO result file for ``kind`` 'bbox' or 'segm', under the given ids.

        Boxes are x, y, width, height; counts of masks are bytes.
        """
        scores = (self.scores if kind == "bbox" else self.mask_scores).tolist()
        found: Sequence[Any] = self.masks or ()
        key = "segmentation"
        if kind == "bbox":
            key = "bbox"
            found = np.hstack([self.boxes[:, :2], self.boxes[:, 2:] - self.boxes[:, :2]]).tolist()
        return [
            {
                "image_id": image_id,
                "category_id": category_ids[label],
                key: value,
                "score": score,
            }
            for label, value, score in zip(self.labels.tolist(), found, scores, strict=True)
        ]


def detections_of(sample: Mapping[str, Any], with_masks: bool) -> Detections:
    """The detections in a data sample's dict.

    Raises:
        UserError: the sample has no image id or no detections, or masks are asked but not there.
    """
    if sample.get("img_id") is None:
        raise UserError(
            "a prediction does not say its image: PackDetInputs.meta_keys must list 'img_id'"
        )
    found = sample.get("pred_instances")
    if found is None:
        raise UserError(
            "CocoMetric needs detections (pred_instances), but the model gives "
            f"{', '.join(map(str, sample)) or 'nothing'}"
        )
    boxes = _array(found["bboxes"], np.float64).reshape(-1, 4)
    scores = _array(found["scores"], np.float64)
    given = found["mask_scores"] if with_masks and "mask_scores" in found else scores
    mask_scores = _array(given, np.float64)
    labels = _array(found["labels"], np.int64)
    finite = np.isfinite(boxes).all(1) & np.isfinite(scores) & np.isfinite(mask_scores)
    chosen = np.flatnonzero(finite)
    size = sample.get("ori_shape")
    return Detections(
        image_id=_plain(sample["img_id"]),
        size=None if size is None else (int(size[0]), int(size[1])),
        boxes=boxes[chosen],
        scores=scores[chosen],
        labels=labels[chosen],
        masks=_encoded(found.get("masks"), chosen, len(labels)) if with_masks else None,
        mask_scores=mask_scores[chosen],
        non_finite=len(labels) - len(chosen),
        path=sample.get("img_path"),
    )


def _encoded(masks: Any, chosen: np.ndarray, count: int) -> list[dict]:
    """Run lengths of the chosen masks: a tensor or array [N, H, W], mmdet's masks or run lengths.

    One mask after the other, since a picture's masks together may not fit a second time.
    """
    from pycocotools import mask as coco_mask

    if masks is None:
        if count == 0:
            return []
        raise UserError(
            "metric 'segm' is asked, but the model predicts no masks; use metric='bbox', or a "
            "detector with a mask head such as Mask R-CNN"
        )
    if hasattr(masks, "to_ndarray"):
        masks = masks.to_ndarray()
    if isinstance(masks, (list, tuple)) and masks and isinstance(masks[0], Mapping):
        return [dict(masks[i]) for i in chosen]
    if isinstance(masks, torch.Tensor):
        masks = masks.detach().cpu()
    return [
        coco_mask.encode(np.asfortranarray(np.asarray(masks[int(i)]), dtype=np.uint8))
        for i in chosen
    ]


def _array(values: Any, dtype: Any) -> np.ndarray:
    """``values``, a tensor, an array or mmdet's boxes, as an array of its own."""
    values = getattr(values, "tensor", values)
    if isinstance(values, torch.Tensor):
        values = values.detach().cpu()
        values = (values.double() if values.is_floating_point() else values).numpy()
    return np.array(values, dtype=dtype)


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, (np.generic, torch.Tensor)) else value
