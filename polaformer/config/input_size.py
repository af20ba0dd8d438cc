"""The image size that a model is trained on, read off the transforms of its data set."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

Size = tuple[int, int]
"""Height and width."""

_RESIZES = ("Resize", "RandomChoiceResize", "RandomResize")


def largest_size(steps: Any) -> Size | None:
    """Height and width of the largest image that ``steps`` hand on, or None if it is open.

    Known are ``input_size`` of ``ClassificationTransform``, mmcv's resizes (a scale is width and
    height; with ``keep_ratio`` its longer side is taken for the width), ``RandomCrop``, ``Pad``
    and choices between branches.
    """
    return _after(steps, None)


def training_size(cfg: Mapping[str, Any], model: Any) -> Size:
    """Height and width of the images that a built model is trained on.

    Without training data they are those of validation or test, and where all are open the size
    that the backbone names.
    """
    filling: Any = getattr(model, "data_preprocessor", None)
    divisor = getattr(filling, "pad_size_divisor", None) or getattr(filling, "size_divisor", None)
    least = pair(getattr(filling, "size", None)) or (1, 1)
    for split in ("train", "val", "test"):
        loader = cfg.get(f"{split}_dataloader")
        dataset = loader.get("dataset") if isinstance(loader, Mapping) else None
        steps = dataset.get("pipeline", dataset.get("transforms")) if dataset else None
        size = largest_size(steps)
        if size is not None:
            return padded((max(size[0], least[0]), max(size[1], least[1])), divisor or 1)
    named = pair((cfg["model"].get("backbone") or {}).get("img_size", 224)) or (224, 224)
    return padded(named, divisor or 1)


def padded(size: Size, divisor: int) -> Size:
    """``size`` filled up to multiples of ``divisor``."""
    high, wide = (-(-side // divisor) * divisor for side in size)
    return high, wide


def _after(steps: Any, size: Size | None) -> Size | None:
    listed: Sequence[Any] = steps if isinstance(steps, list | tuple) else [steps]
    for step in listed:
        if isinstance(step, Mapping):
            size = _step(step, size)
    return size


def _step(step: Mapping[str, Any], size: Size | None) -> Size | None:
    name = str(step.get("type")).rpartition(".")[2]
    if name in _RESIZES:
        return _resized(name, step) or size
    if name == "RandomCrop" and step.get("crop_type", "absolute") == "absolute":
        return _cropped(pair(step.get("crop_size")), size)
    if name == "Pad":
        return pair(step.get("size")) or size
    if name in ("RandomChoice", "TestTimeAug"):
        return _largest([_after(branch, size) for branch in step.get("transforms") or ()]) or size
    return pair(step.get("input_size")) or size


def _resized(name: str, step: Mapping[str, Any]) -> Size | None:
    scales = step.get("scales" if name == "RandomChoiceResize" else "scale")
    several = name == "RandomChoiceResize" or (name == "RandomResize" and _nested(scales))
    choices = scales if several and isinstance(scales, list | tuple) else [scales]
    largest = _largest([_scaled(scale, bool(step.get("keep_ratio"))) for scale in choices])
    ratio = step.get("ratio_range")
    if name == "RandomResize" and largest and isinstance(ratio, list | tuple) and len(ratio) == 2:
        return int(largest[0] * ratio[1]), int(largest[1] * ratio[1])
    return largest


def _scaled(scale: Any, keep_ratio: bool) -> Size | None:
    """A scale, written as width and height, as height and width."""
    sides = pair(scale)
    if sides is None:
        return None
    return (min(sides), max(sides)) if keep_ratio else (sides[1], sides[0])


def _cropped(crop: Size | None, size: Size | None) -> Size | None:
    if crop is None or size is None:
        return crop or size
    return min(crop[0], size[0]), min(crop[1], size[1])


def _largest(sizes: Sequence[Size | None]) -> Size | None:
    return max((size for size in sizes if size), key=lambda s: s[0] * s[1], default=None)


def _nested(value: Any) -> bool:
    return isinstance(value, list | tuple) and all(isinstance(v, list | tuple) for v in value)


def pair(value: Any) -> Size | None:
    """Two whole numbers, also from one number or behind a number of channels."""
    if isinstance(value, int) and not isinstance(value, bool):
        return value, value
    if isinstance(value, list | tuple) and len(value) >= 2:
        high, wide = value[-2:]
        return (high, wide) if isinstance(high, int) and isinstance(wide, int) else None
    return None
