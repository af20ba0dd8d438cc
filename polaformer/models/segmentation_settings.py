"""How a segmentor predicts: what its ``test_cfg`` may say, and what is wrong with one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from operator import gt
from typing import Any

from polaformer.errors import UserError, did_you_mean

Size = tuple[int, int]
INFERENCE_MODES = ("whole", "slide")


@dataclass(frozen=True)
class InferenceSettings:
    """What ``test_cfg`` may say.

    Args:
        mode: 'whole' (the image at once) or 'slide' (overlapping windows, averaged).
        crop_size: side of a window, or height and width.
        stride: pixels from one window to the next, or rows and columns; at most ``crop_size``.
        batch: windows that go through the model at once.
        pixel_loss: also compute the cross entropy where the truth is known.
    """

    mode: str = "whole"
    crop_size: Size | None = None
    stride: Size | None = None
    batch: int = 1
    pixel_loss: bool = True


def settings_of(test_cfg: Mapping[str, Any]) -> InferenceSettings:
    """The settings that a config's ``model.test_cfg`` names.

    Raises:
        UserError: an unknown key or mode, or sizes that do not fit each other.
    """
    where = "model.test_cfg"
    allowed = tuple(InferenceSettings.__dataclass_fields__)
    for key in test_cfg:
        if key not in allowed:
            hint = did_you_mean(key, allowed)
            raise UserError(
                f"unknown key {where}.{key}; allowed: {', '.join(allowed)}. {hint}".rstrip()
            )
    given = {key: value for key, value in test_cfg.items() if value is not None}
    mode, batch = given.get("mode", "whole"), given.get("batch", 1)
    if mode not in INFERENCE_MODES:
        hint = did_you_mean(str(mode), INFERENCE_MODES)
        raise UserError(
            f"{where}.mode={mode!r}; allowed: {', '.join(INFERENCE_MODES)}. {hint}".rstrip()
        )
    if type(batch) is not int or batch < 1:
        raise UserError(f"{where}.batch={batch!r}; allowed: a whole number >= 1")
    if not isinstance(given.get("pixel_loss", True), bool):
        raise UserError(f"{where}.pixel_loss={given['pixel_loss']!r}; allowed: True, False")
    for key in ("crop_size", "stride"):
        if key in given:
            given[key] = _pair(given[key], f"{where}.{key}")
        elif mode == "slide":
            raise UserError(
                f"{where}.mode is 'slide' and {key} is missing; for example "
                "dict(mode='slide', crop_size=(512, 512), stride=(341, 341))"
            )
    if mode == "slide" and any(map(gt, given["stride"], given["crop_size"])):
        raise UserError(
            f"{where}.stride={given['stride']} is larger than crop_size={given['crop_size']}: "
            "pixels between the windows would get no label; allowed: at most crop_size"
        )
    return InferenceSettings(**given)


def _pair(value: Any, where: str) -> Size:
    """A side, or height and width, as two positive whole numbers."""
    pair = (value, value) if type(value) is int else value
    if not isinstance(pair, Sequence) or len(pair) != 2:
        raise UserError(f"{where}={value!r}; allowed: a whole number >= 1 or a pair of them")
    height, width = pair
    if any(type(side) is not int or side < 1 for side in pair):
        raise UserError(f"{where}={value!r}; allowed: a whole number >= 1 or a pair of them")
    return height, width
