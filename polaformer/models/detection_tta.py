"""Test-time augmentation of detectors: the detections of several views of a picture, merged."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from mmengine.model import BaseTTAModel
from mmengine.structures import InstanceData
from torch import Tensor, nn
from torchvision.ops import batched_nms

from polaformer.errors import UserError, did_you_mean
from polaformer.registry import MODELS

FLIPS = {"horizontal": (-1,), "vertical": (-2,), "diagonal": (-1, -2)}
"""Direction of a flip -> the mask axes it reverses."""
UPRIGHT = {"flip": False, "flip_direction": None}


@MODELS.register_module()
class DetectionTTA(BaseTTAModel):
    """A detector whose predictions over scaled and flipped views become one, masks included.

    Boxes and masks of each view, in pixels of the picture as it is on disk, are flipped back; class
    by class, a box that overlaps a better one by more than ``iou_threshold`` is dropped, of
    whichever view; the ``max_per_img`` best remain, each with its own score, label and mask.
    (mmdet's DetTTAModel refuses detectors with masks.) The pictures of a batch are padded to one
    size, which changes what is found in them: test with ``batch_size=1``; ``CocoMetric`` warns.

    In a config, beside the ``tta_pipeline`` (mmdet's ``TestTimeAug`` with ``Resize``, then
    ``RandomFlip``, then ``PackDetInputs``, whose ``meta_keys`` must keep 'ori_shape', 'flip' and
    'flip_direction', as they do by default; no ``Pad`` before a flip)::

        tta_model = dict(
            type="polaformer.DetectionTTA",
            tta_cfg=dict(nms=dict(type="nms", iou_threshold=0.5), max_per_img=100),
        )

    Args:
        module: the detector, or its config; its weights are those of a checkpoint, under 'module.'.
        tta_cfg: ``nms`` (``type`` 'nms', ``iou_threshold`` in 0..1) and ``max_per_img``; what is
            left out is as above.
        data_preprocessor: that of ``module``, where ``module`` is a config without one.
    """

    def __init__(
        self,
        module: dict | nn.Module,
        tta_cfg: Mapping[str, Any] | None = None,
        data_preprocessor: dict | None = None,
    ) -> None:
        super().__init__(module=module, data_preprocessor=data_preprocessor)
        self.iou_threshold, self.max_per_img = _settings(tta_cfg or {})

    def test_step(self, data: Mapping[str, Sequence[Any]]) -> list[Any]:
        """Merged predictions of a batch, whose values hold one list of pictures per view."""
        views = [
            dict(zip(data, values, strict=True)) for values in zip(*data.values(), strict=True)
        ]
        found = [self._predict(view) for view in views]
        return self.merge_preds(list(zip(*found, strict=True)))

    def _predict(self, view: Mapping[str, Any]) -> list[Any]:
        """Predictions of one view.

        The detector does not hear that it was flipped: mmdet's cascade heads would flip the masks
        back by themselves, but not the boxes that these belong to.
        """
        samples = view["data_samples"]
        flips = [{key: s.metainfo[key] for key in UPRIGHT if key in s.metainfo} for s in samples]
        for sample, flip in zip(samples, flips, strict=True):
            sample.set_metainfo({key: UPRIGHT[key] for key in flip})
        found = self.module.test_step(view)
        for sample, flip in zip(found, flips, strict=True):
            sample.set_metainfo(flip)
        return found

    def merge_preds(self, data_samples_list: Sequence[Sequence[Any]]) -> list[Any]:
        """One sample for every picture; the inner sequences are the views of one picture."""
        return [self._merge(list(views)) for views in data_samples_list]

    def _merge(self, views: list[Any]) -> Any:
        found = [view.pred_instances for view in views]
        boxes = torch.cat([_boxes_back(view) for view in views])
        scores = torch.cat([instances.scores for instances in found])
        labels = torch.cat([instances.labels for instances in found])
        kept = self._kept(boxes, scores, labels)
        upright = next((view for view in views if _flip_of(view) is None), views[0])
        merged = upright.new()
        if _flip_of(upright) is not None:
            merged.set_metainfo(UPRIGHT)
        merged.pred_instances = _chosen(views, boxes, kept)
        return merged

    def _kept(self, boxes: Tensor, scores: Tensor, labels: Tensor) -> Tensor:
        """Indices of the boxes that remain, best first."""
        finite = (boxes.isfinite().all(dim=1) & scores.isfinite()).nonzero().flatten()
        if finite.numel() == 0:
            return finite
        # batched_nms moves each class to a place of its own: in float64, and with no negative
        # coordinate, the classes cannot touch and the overlaps are not rounded.
        moved = boxes[finite].double()
        moved = moved - moved.min()
        kept = batched_nms(moved, scores[finite].double(), labels[finite], self.iou_threshold)
        return finite[kept[: self.max_per_img]]


def _chosen(views: list[Any], boxes: Tensor, kept: Tensor) -> InstanceData:
    """The instances ``kept`` of all views in that order, upright; ``boxes`` are so already.

    Only masks of kept boxes are copied: those of all views together may not fit a second time.
    """
    parts, places = [], []
    start = 0
    for view in views:
        count = len(view.pred_instances.scores)
        place = ((kept >= start) & (kept < start + count)).nonzero().flatten()
        part = view.pred_instances[(kept[place] - start)]
        part.bboxes = boxes[kept[place]]
        if "masks" in part:
            part.masks = _masks_back(part.masks, _flip_of(view))
        parts.append(part)
        places.append(place)
        start += count
    used = [part for part, place in zip(parts, places, strict=True) if len(place)]
    if not used:
        return parts[0]
    return InstanceData.cat(used)[torch.cat(places).argsort()]


def _boxes_back(view: Any) -> Tensor:
    """Boxes [N, 4] of a view, x1, y1, x2, y2, in the upright picture and at least fp32."""
    boxes = view.pred_instances.bboxes
    boxes = getattr(boxes, "tensor", boxes)
    boxes = boxes if boxes.dtype == torch.float64 else boxes.float()
    direction = _flip_of(view)
    if direction is None:
        return boxes
    height, width = view.metainfo["ori_shape"][:2]
    x1, y1, x2, y2 = boxes.unbind(dim=1)
    axes = FLIPS[direction]
    if -1 in axes:
        x1, x2 = width - x2, width - x1
    if -2 in axes:
        y1, y2 = height - y2, height - y1
    return torch.stack([x1, y1, x2, y2], dim=1)


def _masks_back(masks: Any, direction: str | None) -> Any:
    """Masks [N, H, W] of a view, a tensor or an array, in the upright picture."""
    if direction is None:
        return masks
    if isinstance(masks, Tensor):
        return masks.flip(FLIPS[direction])
    if isinstance(masks, np.ndarray):
        return np.flip(masks, FLIPS[direction])
    return masks.flip(flip_direction=direction)


def _flip_of(view: Any) -> str | None:
    """The direction in which a view was flipped."""
    if not view.metainfo.get("flip"):
        return None
    direction = view.metainfo.get("flip_direction")
    if direction not in FLIPS or "ori_shape" not in view.metainfo:
        raise UserError(
            f"a flipped view has flip_direction={direction!r}; DetectionTTA needs one of "
            f"{', '.join(FLIPS)} and the 'ori_shape', both listed in PackDetInputs.meta_keys"
        )
    return str(direction)


def _settings(tta_cfg: Mapping[str, Any]) -> tuple[float, int]:
    """The threshold and the number of boxes that ``tta_cfg`` names."""
    nms = tta_cfg.get("nms", {})
    for name, given, allowed in (
        ("tta_cfg", tta_cfg, ("nms", "max_per_img")),
        ("tta_cfg.nms", nms, ("type", "iou_threshold")),
    ):
        for key in given:
            if key not in allowed:
                hint = did_you_mean(key, allowed)
                raise UserError(
                    f"unknown key {name}.{key}; allowed: {', '.join(allowed)}. {hint}".rstrip()
                )
    if nms.get("type", "nms") != "nms":
        raise UserError(f"tta_cfg.nms.type={nms['type']!r}; DetectionTTA merges by 'nms' only")
    threshold, count = nms.get("iou_threshold", 0.5), tta_cfg.get("max_per_img", 100)
    if not isinstance(threshold, (int, float)) or not 0 <= threshold <= 1:
        raise UserError(f"tta_cfg.nms.iou_threshold={threshold!r}; allowed: a number in 0..1")
    if not isinstance(count, int) or count < 1:
        raise UserError(f"tta_cfg.max_per_img={count!r}; allowed: a whole number >= 1")
    return float(threshold), count
