"""What one image leaves behind for the overlap of class maps: which class was taken for which."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from polaformer.errors import UserError

_STRIP = 1 << 22
"""Pixels counted at a time, so that a large image needs little more memory than its maps."""


@dataclass(slots=True)
class Counted:
    """The pixels of one image, as the cells of its confusion matrix that are not empty.

    ``cells[i]`` = true class * classes + predicted class, ``counts[i]`` its pixels. ``loss`` is a
    sum and the number of its pixels, ``picture`` the predicted map as a PNG file.
    """

    key: str
    path: str
    cells: np.ndarray
    counts: np.ndarray
    ignored: int
    loss: tuple[float, int] | None = None
    picture: bytes | None = None


def maps_of(
    sample: Mapping[str, Any], need_truth: bool = True
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Predicted and true class map [H, W] of a data sample's dict, on the device of the first.

    Without ``need_truth`` the second one is None.

    Raises:
        UserError: one of them is absent, is no map of whole numbers, or is of another size.
    """
    predicted = _map(sample, "pred_sem_seg")
    if predicted is None:
        raise UserError(
            "SegmentationMetric needs class maps (pred_sem_seg), but the model gives "
            f"{', '.join(map(str, sample)) or 'nothing'}"
        )
    if not need_truth:
        return predicted, None
    truth = _map(sample, "gt_sem_seg")
    if truth is None:
        raise UserError(
            f"{_name(sample)} has no truth (gt_sem_seg) to compare with; the pipeline of the "
            "validation must hold polaformer.LoadMask before PackSegInputs. For images without "
            "truth SegmentationMetric(format_only=True) writes predictions alone"
        )
    if predicted.shape != truth.shape:
        raise UserError(
            f"{_name(sample)}: the predicted map is {_size(predicted)}, the true one {_size(truth)}"
            " (height x width). Predictions have the size of the image file, and so must the truth:"
            " in the pipeline of the validation LoadMask stands after Resize"
        )
    return predicted, truth.to(predicted.device)


def count_pixels(
    sample: Mapping[str, Any],
    predicted: torch.Tensor,
    truth: torch.Tensor | None,
    num_classes: int,
    ignore_index: int,
) -> Counted:
    """Count which class was taken for which, on the device of the maps.

    Without truth nothing is counted: every pixel is ignored.

    Raises:
        UserError: a class number is outside of the classes, or the image has no name.
    """
    cells = num_classes * num_classes
    if truth is None:
        truth = torch.full_like(predicted, ignore_index, dtype=torch.int32)
    total = torch.zeros(cells + 1, dtype=torch.int64, device=predicted.device)
    strips = zip(predicted.flatten().split(_STRIP), truth.flatten().split(_STRIP), strict=True)
    for said, true in ((said.int(), true.int()) for said, true in strips):
        counted = true != ignore_index
        _refuse_outside(sample, said, true, counted, num_classes)
        # The last cell collects what is ignored: choosing the others would wait for the device.
        index = torch.where(counted, true * num_classes + said, cells)
        total += torch.bincount(index, minlength=cells + 1)
    numbers = total.cpu().numpy()
    used = np.flatnonzero(numbers[:-1])
    path = sample.get("img_path")
    return Counted(
        key=_name(sample),
        path="" if path is None else str(path),
        cells=used,
        counts=numbers[used],
        ignored=int(numbers[-1]),
        loss=_loss(sample.get("pixel_loss")),
    )


def _refuse_outside(
    sample: Mapping[str, Any],
    said: torch.Tensor,
    true: torch.Tensor,
    counted: torch.Tensor,
    num_classes: int,
) -> None:
    if not said.numel():
        return
    outside = counted & ((true < 0) | (true >= num_classes))
    wrong_said = (said < 0) | (said >= num_classes)
    if not bool((outside | wrong_said).any()):
        return
    if bool(outside.any()):
        values = torch.unique(true[outside]).tolist()
        some = ", ".join(map(str, values[:5])) + (", …" if len(values) > 5 else "")
        raise UserError(
            f"{_name(sample)}: {int(outside.sum())} true pixels have the value {some}, but the "
            f"{num_classes} classes are 0 to {num_classes - 1}; what belongs to no class must be "
            "the ignored value, and reduce_zero_label or label_values of the data set say how its "
            "files are numbered"
        )
    raise UserError(
        f"{_name(sample)}: the model predicts class number {int(said[wrong_said][0])}, but the "
        f"data set has {num_classes} classes; num_classes of the decode head must be the number "
        "of classes of the data set"
    )


def _map(sample: Mapping[str, Any], name: str) -> torch.Tensor | None:
    """The class map [H, W] of an entry of ``sample``, or None."""
    held: Any = sample.get(name)
    data = held.get("data") if hasattr(held, "get") else held
    if data is None:
        return None
    tensor = torch.as_tensor(data).detach()
    if tensor.ndim == 3 and len(tensor) == 1:
        tensor = tensor[0]
    if tensor.ndim != 2 or tensor.is_floating_point():
        raise UserError(
            f"{_name(sample)}: {name} must be a map [1, H, W] of class numbers, not "
            f"{list(tensor.shape)} of {str(tensor.dtype).removeprefix('torch.')}"
        )
    return tensor


def _loss(given: Any) -> tuple[float, int] | None:
    if given is None:
        return None
    value, pixels = given
    return float(value), int(pixels)


def _name(sample: Mapping[str, Any]) -> str:
    """The id of an image, or its path where it has none."""
    for key in ("img_id", "img_path"):
        if sample.get(key) is not None:
            return str(sample[key])
    raise UserError(
        "a prediction does not say its image: PackSegInputs.meta_keys must list 'img_id' or "
        "'img_path'"
    )


def _size(values: torch.Tensor) -> str:
    return f"{values.shape[0]}x{values.shape[1]}"
