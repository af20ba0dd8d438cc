"""RoIPool: the maximum over the pixels of each bin of a region, as mmcv defines it.

Girshick, "Fast R-CNN", ICCV 2015. Input [N, C, H, W], regions [R, 5], output [R, C, h, w]. A region
reaches to the far edge of its last pixel and is not rounded before it is divided into bins, which
torchvision's operation does; so this is written with indexing, in pieces of bounded size.
"""

from __future__ import annotations

import torch
from torch import Tensor

from polaformer.compat.mmcv_ops.regions import sound_regions

PIECE = 2**24
"""How many values of the input are gathered at once, where a single region needs no more."""


def forward(
    input: Tensor,
    rois: Tensor,
    output: Tensor,
    argmax: Tensor,
    pooled_height: int,
    pooled_width: int,
    spatial_scale: float,
) -> None:
    """Write the maxima into ``output`` and their pixels, ``row * W + column``, into ``argmax``.

    A bin without a pixel is 0 and has the pixel -1.
    """
    dtype = torch.promote_types(input.dtype, torch.float32)
    regions, unsound = sound_regions(rois, input.shape[0], dtype)
    if output.numel() == 0:
        return
    height, width = input.shape[2:]
    top, bottom = _bins(regions[:, 2], regions[:, 4], pooled_height, spatial_scale, height)
    left, right = _bins(regions[:, 1], regions[:, 3], pooled_width, spatial_scale, width)
    rows, columns = (bottom - top).amax().clamp(min=1), (right - left).amax().clamp(min=1)
    per_region = pooled_height * pooled_width * int(rows * columns) * input.shape[1]
    pixels_last = input.permute(0, 2, 3, 1)
    for piece in torch.arange(len(regions), device=input.device).split(max(1, PIECE // per_region)):
        y, y_inside = _pixels(top[piece], bottom[piece], height)
        x, x_inside = _pixels(left[piece], right[piece], width)
        image = regions[piece, 0].long()[:, None, None, None, None]
        values = pixels_last[image, y[:, :, None, :, None], x[:, None, :, None, :]]
        inside = y_inside[:, :, None, :, None] & x_inside[:, None, :, None, :]
        values = values.masked_fill(~inside[..., None], -torch.inf)
        best, place = values.flatten(3, 4).max(3)
        pixel = (y[:, :, None, :, None] * width + x[:, None, :, None, :]).flatten(3)
        filled = inside.flatten(3).any(3)[..., None]
        pixel = pixel.gather(3, place).where(filled, -1)
        output[piece] = best.where(filled, 0).permute(0, 3, 1, 2)
        argmax[piece] = pixel.permute(0, 3, 1, 2).to(argmax.dtype)
    output.masked_fill_(unsound[:, None, None, None], torch.nan)


def backward(
    grad_output: Tensor,
    rois: Tensor,
    argmax: Tensor,
    grad_input: Tensor,
    pooled_height: int,
    pooled_width: int,
    spatial_scale: float,
) -> None:
    """Write the gradient of the input, which goes to the pixels in ``argmax``."""
    dtype = torch.promote_types(grad_output.dtype, torch.float32)
    regions, unsound = sound_regions(rois, grad_input.shape[0], dtype)
    images, channels, height, width = grad_input.shape
    lost = (argmax < 0) | unsound[:, None, None, None]
    plane = regions[:, :1].long() * channels + torch.arange(channels, device=rois.device)
    place = plane[:, :, None, None] * (height * width) + argmax.long()
    total = torch.zeros(grad_input.numel(), dtype=dtype, device=grad_input.device)
    total.index_add_(
        0,
        place.masked_fill(lost, 0).flatten(),
        grad_output.to(dtype).masked_fill(lost, 0).flatten(),
    )
    grad_input.copy_(total.view(images, channels, height, width))


def _bins(
    start: Tensor, last: Tensor, count: int, spatial_scale: float, limit: int
) -> tuple[Tensor, Tensor]:
    """First pixel of each of ``count`` bins and the one after its last, both [R, count]."""
    start = start * spatial_scale
    size = ((last + 1) * spatial_scale - start) / count
    edges = torch.arange(count + 1, device=start.device, dtype=start.dtype)
    first = (edges[:-1] * size[:, None] + start[:, None]).floor()
    end = (edges[1:] * size[:, None] + start[:, None]).ceil().where(size[:, None] > 0, first)
    return first.clamp(0, limit).long(), end.clamp(0, limit).long()


def _pixels(first: Tensor, end: Tensor, limit: int) -> tuple[Tensor, Tensor]:
    """Pixels of each bin, padded to the longest, and which of them belong to it."""
    longest = max(1, int((end - first).max()))
    pixels = first[..., None] + torch.arange(longest, device=first.device)
    return pixels.clamp(max=limit - 1), pixels < end[..., None]
