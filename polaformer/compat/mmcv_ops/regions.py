"""What the poolings of regions share: regions are [R, 5] as (image, x1, y1, x2, y2)."""

from __future__ import annotations

import torch
from torch import Tensor


def sound_regions(rois: Tensor, images: int, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Regions that a kernel can take, and which of them [R] were none.

    A number that is not finite would send a kernel outside its memory; such a region becomes an
    empty one, and its result is to be NaN. So is one of an image that is not in the batch on an
    accelerator, where looking would wait for the device; on the CPU it is an IndexError.
    """
    image = rois[:, 0]
    beyond = (image < 0) | (image >= images)
    if rois.device.type == "cpu" and beyond.any():
        first = int(beyond.nonzero()[0])
        raise IndexError(
            f"region {first} belongs to image {rois[first, 0].item():g}, "
            f"and the batch has {images} (numbered from 0)"
        )
    unsound = beyond | ~rois.isfinite().all(1)
    return rois.to(dtype).masked_fill(unsound[:, None], 0), unsound
