"""Whether a pipeline loads label images the way the data set means."""

from __future__ import annotations

from typing import Any

from polaformer.datasets.coco_pipeline import steps_of
from polaformer.errors import UserError

_MOVING = ("Resize", "Flip", "Crop", "Rotate", "Mosaic")


def check_mask_loading(pipeline: Any, test_mode: bool) -> None:
    """Raise UserError for a pipeline that would train on wrong labels.

    mmseg's LoadAnnotations knows no values or colours of classes; in training a label image that is
    loaded after the image was moved or resized does not lie on it.
    """
    moved = ""
    for name in map(_name, steps_of(pipeline)):
        if name == "LoadAnnotations":
            raise UserError(
                "pipeline: LoadAnnotations does not know how the label images of "
                "polaformer.SegmentationDataset are numbered; take dict(type='polaformer.LoadMask')"
            )
        if name == "LoadMask" and moved and not test_mode:
            raise UserError(
                f"pipeline: LoadMask after {moved}: the label image would not lie on the picture "
                "any more; put it right after polaformer.LoadImage (with test_mode=True the truth "
                "may keep its own size)"
            )
        if not moved and any(part in name for part in _MOVING):
            moved = name


def exif_is_chosen(pipeline: Any) -> bool:
    """Whether LoadImage is told to turn pictures as EXIF says, or not to."""
    return any(_value(step, "exif", "auto") != "auto" for step in steps_of(pipeline))


def _value(step: Any, name: str, default: Any) -> Any:
    return step.get(name, default) if isinstance(step, dict) else getattr(step, name, default)


def _name(step: Any) -> str:
    kind = step.get("type", "") if isinstance(step, dict) else type(step)
    return (kind if isinstance(kind, str) else kind.__name__).rpartition(".")[2]
