"""Pooling of regions: input [N, C, H, W], regions [R, 5] as (image, x1, y1, x2, y2)."""

from __future__ import annotations

import torch
import torchvision  # noqa: F401  (registers its operations)
from torch import Tensor

AVERAGE = 1


def roi_align_forward(
    input: Tensor,
    rois: Tensor,
    output: Tensor,
    argmax_y: Tensor,
    argmax_x: Tensor,
    *,
    aligned_height: int,
    aligned_width: int,
    spatial_scale: float,
    sampling_ratio: int,
    pool_mode: int,
    aligned: bool,
) -> None:
    """Write the pooled regions into ``output`` [R, C, aligned_height, aligned_width]."""
    kind = torch.promote_types(input.dtype, torch.float32)
    pooled = torch.ops.torchvision.roi_align(
        input.to(kind),
        rois.to(kind),
        spatial_scale,
        aligned_height,
        aligned_width,
        sampling_ratio,
        aligned,
    )
    output.copy_(pooled)


def roi_align_backward(
    grad_output: Tensor,
    rois: Tensor,
    argmax_y: Tensor,
    argmax_x: Tensor,
    grad_input: Tensor,
    *,
    aligned_height: int,
    aligned_width: int,
    spatial_scale: float,
    sampling_ratio: int,
    pool_mode: int,
    aligned: bool,
) -> None:
    """Write the gradient of the input into ``grad_input``."""
    kind = torch.promote_types(grad_output.dtype, torch.float32)
    grad = torch.ops.torchvision._roi_align_backward(
        grad_output.to(kind),
        rois.to(kind),
        spatial_scale,
        aligned_height,
        aligned_width,
        *grad_input.shape,
        sampling_ratio,
        aligned,
    )
    grad_input.copy_(grad)
