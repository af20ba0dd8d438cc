"""Suppression of overlapping boxes, with the results of mmcv's kernels.

Boxes are [N, 4] as (x1, y1, x2, y2); with ``offset=1`` both ends belong to a box, and its width is
``x2 - x1 + 1``.
"""

from __future__ import annotations

import torch
import torchvision  # noqa: F401  (registers its operations)
from torch import Tensor


def nms(boxes: Tensor, scores: Tensor, iou_threshold: float, offset: int) -> Tensor:
    """Indices of the boxes to keep, best first.

    torchvision sorts equal scores by position, mmcv by torch's unstable sort, and which of two
    equals stays decides the result; so the boxes are sorted here and torchvision sees ranks.
    """
    if boxes.shape[0] == 0:
        return torch.zeros(0, dtype=torch.long, device=boxes.device)
    order = scores.sort(0, descending=True).indices
    sorted_boxes = boxes.detach()[order]
    if sorted_boxes.dtype != torch.float64:
        sorted_boxes = sorted_boxes.float()
        # mmcv compares in single precision: an overlap of just 0.6 is not above 0.6.
        iou_threshold = torch.tensor(iou_threshold, dtype=torch.float32).item()
    if offset:
        sorted_boxes = sorted_boxes + sorted_boxes.new_tensor([0, 0, offset, offset])
    count = len(order)
    kind = torch.float64 if count > 2**24 else sorted_boxes.dtype
    ranks = torch.arange(count, 0, -1, dtype=kind, device=boxes.device)
    kept = torch.ops.torchvision.nms(sorted_boxes.to(kind), ranks, iou_threshold)
    return order[kept]
