"""Suppression of overlapping boxes, with the results of mmcv's CPU kernels.

Boxes are [N, 4] as (x1, y1, x2, y2). With ``offset=1`` both ends belong to a box, whose width is
then ``x2 - x1 + 1``. Thresholds are compared in the precision of the boxes, at least single: an
overlap of just 0.6 is not above 0.6. Two boxes without area do not overlap.
"""

from __future__ import annotations

import numpy as np
import torch
import torchvision  # noqa: F401  (registers its operations)
from torch import Tensor

NAIVE, LINEAR, GAUSSIAN = 0, 1, 2


def nms(boxes: Tensor, scores: Tensor, iou_threshold: float, offset: int) -> Tensor:
    """Indices of the boxes to keep, best first.

    torchvision orders equal scores by position, mmcv by torch's unstable sort, and the result
    depends on it. So the boxes are sorted here, and torchvision sees ranks in place of scores.
    """
    if boxes.shape[0] == 0:
        return torch.zeros(0, dtype=torch.long, device=boxes.device)
    order = scores.sort(0, descending=True).indices
    sorted_boxes = _at_least_single(boxes)[order]
    if offset:
        sorted_boxes = sorted_boxes + sorted_boxes.new_tensor([0, 0, offset, offset])
    threshold = iou_threshold
    if sorted_boxes.dtype == torch.float32:
        threshold = float(np.float32(iou_threshold))
    if len(order) > 2**24:  # single precision has no more ranks than these
        sorted_boxes = sorted_boxes.double()
    ranks = torch.arange(len(order), 0, -1, dtype=sorted_boxes.dtype, device=sorted_boxes.device)
    return order[torch.ops.torchvision.nms(sorted_boxes, ranks, threshold)]


def softnms(
    boxes: Tensor,
    scores: Tensor,
    dets: Tensor,
    iou_threshold: float,
    sigma: float,
    min_score: float,
    method: int,
    offset: int,
) -> Tensor:
    """Write the boxes with their lowered scores into ``dets`` [N, 5]; return their indices.

    Bodla et al., "Soft-NMS", ICCV 2017. The best remaining box is taken, the scores of the others
    are lowered by their overlap with it, and those below ``min_score`` are dropped.
    """
    values = np.concatenate([_array(boxes).reshape(-1, 4), _array(scores).reshape(-1, 1)], axis=1)
    indices = np.arange(len(values))
    threshold = values.dtype.type(iou_threshold)
    taken = 0
    while taken < len(values):
        best = taken + _best(values[taken:, 4])
        values[[taken, best]] = values[[best, taken]]
        indices[[taken, best]] = indices[[best, taken]]
        rest = values[taken + 1 :]
        overlap = _overlap(values[taken, :4], rest[:, :4], offset)
        rest[:, 4] *= _weight(overlap, method, threshold, values.dtype.type(sigma))
        taken += 1
        keep = ~(rest[:, 4] < min_score)
        if keep.all():
            continue
        order = _close_gaps(keep)
        values = np.concatenate([values[:taken], rest[order]])
        indices = np.concatenate([indices[:taken], indices[taken:][order]])
    dets[: len(values)] = torch.from_numpy(values).to(dets)
    return torch.from_numpy(indices)


def nms_match(dets: Tensor, iou_threshold: float) -> list[list[int]]:
    """Each box that is kept with those it suppresses, in order of their scores.

    ``dets`` is [N, 5], boxes with scores; an overlap of just ``iou_threshold`` suppresses.
    """
    if dets.shape[0] == 0:
        return []
    rest = dets[:, 4].sort(0, descending=True).indices.numpy()
    boxes = _array(dets)[:, :4]
    threshold = boxes.dtype.type(iou_threshold)
    groups = []
    while len(rest):
        best, others = rest[0], rest[1:]
        close = _overlap(boxes[best], boxes[others], 0) >= threshold
        groups.append([int(best), *others[close].tolist()])
        rest = others[~close]
    return groups


def _at_least_single(tensor: Tensor) -> Tensor:
    tensor = tensor.detach()
    return tensor.to(torch.promote_types(tensor.dtype, torch.float32))


def _array(tensor: Tensor) -> np.ndarray:
    return _at_least_single(tensor).cpu().numpy()


def _best(scores: np.ndarray) -> int:
    """The first of the highest; a score that is no number comes last."""
    return int(np.where(np.isnan(scores), -np.inf, scores).argmax())


def _overlap(box: np.ndarray, others: np.ndarray, offset: int) -> np.ndarray:
    sizes = others[:, 2:] - others[:, :2] + offset
    with np.errstate(all="ignore"):
        shared = np.minimum(box[2:], others[:, 2:]) - np.maximum(box[:2], others[:, :2]) + offset
        common = np.maximum(shared, 0).prod(axis=1)
        union = (box[2:] - box[:2] + offset).prod() + sizes.prod(axis=1) - common
        overlap = common / union
    return np.where(np.isnan(overlap), 0, overlap)


def _weight(
    overlap: np.ndarray, method: int, threshold: np.floating, sigma: np.floating
) -> np.ndarray:
    if method == GAUSSIAN:
        return np.exp(-(overlap * overlap) / sigma)
    return np.where(overlap >= threshold, 1 - overlap if method == LINEAR else 0, 1)


def _close_gaps(keep: np.ndarray) -> np.ndarray:
    """Positions of the kept, each gap filled from the end, as mmcv drops a box.

    Which of two equal scores is taken first depends on the positions that this leaves.
    """
    count = int(keep.sum())
    order = np.arange(count)
    order[~keep[:count]] = count + np.flatnonzero(keep[count:])[::-1]
    return order
