"""RoIAlign: average or maximum of bilinear samples in each bin of a region.

He et al., "Mask R-CNN", ICCV 2017. Input [N, C, H, W], regions [R, 5], output [R, C, h, w].
``sampling_ratio`` samples are taken per bin and direction; 0 takes one per pixel of the bin.
With ``aligned`` the regions are shifted by half a pixel, otherwise they are at least a pixel wide.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
import torch.nn.functional as F
import torchvision  # noqa: F401  (registers its operations)
from torch import Tensor

from polaformer.compat.mmcv_ops.regions import sound_regions

MAX = 0


def forward(
    input: Tensor,
    rois: Tensor,
    output: Tensor,
    argmax_y: Tensor,
    argmax_x: Tensor,
    aligned_height: int,
    aligned_width: int,
    spatial_scale: float,
    sampling_ratio: int,
    pool_mode: int,
    aligned: bool,
) -> None:
    """Write the pooled regions into ``output``.

    For the maximum, ``argmax_y`` and ``argmax_x``, of the shape of ``output``, receive the row and
    the column of the winning sample within its bin.
    """
    dtype = torch.promote_types(input.dtype, torch.float32)
    regions, unsound = _regions(rois, input.shape[0], dtype)
    size = (aligned_height, aligned_width)
    if pool_mode != MAX:
        pooled = torch.ops.torchvision.roi_align(
            input.to(dtype), regions, spatial_scale, *size, sampling_ratio, aligned
        )
        output.copy_(pooled)
    else:
        for chosen, grid in _by_grid(regions, size, spatial_scale, sampling_ratio, aligned):
            samples = _samples(input.to(dtype), regions[chosen], size, grid, spatial_scale, aligned)
            pooled, place = F.max_pool2d(samples, grid, return_indices=True)
            output[chosen] = pooled.to(output.dtype)
            width = samples.shape[3]
            argmax_y[chosen] = (place // width % grid[0]).to(argmax_y.dtype)
            argmax_x[chosen] = (place % width % grid[1]).to(argmax_x.dtype)
    output.masked_fill_(unsound[:, None, None, None], torch.nan)


def backward(
    grad_output: Tensor,
    rois: Tensor,
    argmax_y: Tensor,
    argmax_x: Tensor,
    grad_input: Tensor,
    aligned_height: int,
    aligned_width: int,
    spatial_scale: float,
    sampling_ratio: int,
    pool_mode: int,
    aligned: bool,
) -> None:
    """Write the gradient of the input into ``grad_input``."""
    dtype = torch.promote_types(grad_output.dtype, torch.float32)
    regions, unsound = _regions(rois, grad_input.shape[0], dtype)
    grad = grad_output.to(dtype).masked_fill(unsound[:, None, None, None], 0)
    size, shape = (aligned_height, aligned_width), tuple(grad_input.shape)
    if pool_mode != MAX:
        total = _spread(grad, regions, shape, spatial_scale, sampling_ratio, aligned)
        grad_input.copy_(total)
        return
    total = torch.zeros_like(grad_input, dtype=dtype)
    for chosen, grid in _by_grid(regions, size, spatial_scale, sampling_ratio, aligned):
        places = argmax_y[chosen], argmax_x[chosen]
        fine = _to_samples(grad[chosen], *places, grid)
        total += _spread(fine, regions[chosen], shape, spatial_scale, 1, aligned)
    grad_input.copy_(total)


def _regions(rois: Tensor, images: int, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Sound regions, of which one that ends before it starts is empty; mmcv stops at those."""
    sound, unsound = sound_regions(rois, images, dtype)
    start = sound[:, 1:3]
    return torch.cat([sound[:, :1], start, sound[:, 3:].maximum(start)], 1), unsound


def _spread(
    grad: Tensor,
    regions: Tensor,
    shape: tuple[int, ...],
    spatial_scale: float,
    sampling_ratio: int,
    aligned: bool,
) -> Tensor:
    if grad.numel() == 0:
        return grad.new_zeros(shape)
    return torch.ops.torchvision._roi_align_backward(
        grad, regions, spatial_scale, *grad.shape[2:], *shape, sampling_ratio, aligned
    )


def _by_grid(
    regions: Tensor, size: tuple[int, int], spatial_scale: float, sampling_ratio: int, aligned: bool
) -> Iterator[tuple[Tensor, tuple[int, int]]]:
    """Indices of the regions that have the same number of samples (rows, columns) per bin."""
    if sampling_ratio > 0:
        yield torch.arange(len(regions), device=regions.device), (sampling_ratio, sampling_ratio)
        return
    extent = regions[:, [4, 3]] * spatial_scale - regions[:, [2, 1]] * spatial_scale
    if not aligned:
        extent = extent.clamp(min=1)
    grids = (extent / extent.new_tensor(size)).ceil().long()
    for grid in grids.unique(dim=0):
        if grid.min() > 0:
            yield (grids == grid).all(1).nonzero().flatten(), (int(grid[0]), int(grid[1]))


def _samples(
    input: Tensor,
    regions: Tensor,
    size: tuple[int, int],
    grid: tuple[int, int],
    spatial_scale: float,
    aligned: bool,
) -> Tensor:
    """Every sample of every bin: the average over bins that hold one sample each."""
    fine = (size[0] * grid[0], size[1] * grid[1])
    return torch.ops.torchvision.roi_align(input, regions, spatial_scale, *fine, 1, aligned)


def _to_samples(grad: Tensor, row: Tensor, column: Tensor, grid: tuple[int, int]) -> Tensor:
    """The gradient of each bin at its winning sample, [R, C, h * rows, w * columns]."""
    R, C, h, w = grad.shape
    fine = grad.new_zeros(R, C, h, w, grid[0] * grid[1])
    place = row.long() * grid[1] + column.long()
    fine.scatter_(4, place[..., None], grad[..., None])
    fine = fine.view(R, C, h, w, *grid).permute(0, 1, 2, 4, 3, 5)
    return fine.reshape(R, C, h * grid[0], w * grid[1])
