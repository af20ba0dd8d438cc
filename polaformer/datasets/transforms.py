"""From a PIL image to the uint8 tensor a model takes, on timm's transforms.

Normalisation and random erasing happen later, on the device, in the model's preprocessor. All
randomness comes from Python's, numpy's and torch's global generators, so seeding those three
fixes the result.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from PIL import Image
from timm.data import IMAGENET_DEFAULT_MEAN, create_transform
from timm.data.transforms import str_to_interp_mode
from torchvision import transforms as tv

from polaformer.errors import UserError, did_you_mean
from polaformer.registry import TRANSFORMS

_RESIZE = {"squash": "squash", "shortest": "center"}
_INTERPOLATIONS = ("nearest", "bilinear", "bicubic", "lanczos", "box", "hamming")
_AFFINE = ("degrees", "translate", "scale", "shear", "fill")


@TRANSFORMS.register_module()
class ClassificationTransform:
    """The published augmentation for training, or resize and centre crop for evaluation.

    Takes a PIL RGB image, gives a uint8 tensor [3, H, W].

    Args:
        input_size: side, or (height, width), of the result in pixels.
        is_training: random crop and augmentation instead of resize and centre crop.
        auto_augment: timm's description of RandAugment, AutoAugment or AugMix, or None for none.
        color_jitter: strength of brightness, contrast and saturation jitter, or None; as in timm
            it is used only where ``auto_augment`` is None.
        interpolation: nearest, bilinear, bicubic, lanczos, box or hamming; in training also random.
        scale: range of the random crop's share of the picture's area; None resizes the whole
            picture.
        ratio: range of the random crop's aspect ratio.
        hflip: probability of mirroring left and right (0 for digits and text).
        vflip: probability of mirroring top and bottom.
        affine: small random motion dict(degrees=, translate=, scale=, shear=, fill=) with
            torchvision's meaning: degrees of rotation, (x, y) shares of the size, range of zoom;
            None for none.
        resize: 'squash' brings both sides to size / crop_pct without keeping the aspect ratio, as
            the published evaluation does; 'shortest' does so with the shorter side only and keeps
            it.
        crop_pct: share of the resized side that the centre crop keeps; 0.875 is 224 of 256.
        test_crop: False resizes to exactly ``input_size`` and crops nothing (the 384-pixel models);
            with resize='shortest' the longer side is still cropped.
        mean: fills what RandAugment moves into the picture, as a share of 255.
    """

    def __init__(
        self,
        input_size: int | Sequence[int] = 224,
        is_training: bool = False,
        auto_augment: str | None = "rand-m9-mstd0.5-inc1",
        color_jitter: float | Sequence[float] | None = 0.4,
        interpolation: str = "bicubic",
        scale: Sequence[float] | None = (0.08, 1.0),
        ratio: Sequence[float] = (3 / 4, 4 / 3),
        hflip: float = 0.5,
        vflip: float = 0.0,
        affine: dict[str, Any] | None = None,
        resize: str = "squash",
        crop_pct: float = 0.875,
        test_crop: bool = True,
        mean: Sequence[float] = IMAGENET_DEFAULT_MEAN,
    ) -> None:
        self.input_size = _size(input_size)
        self.is_training = is_training
        _known("resize", resize, tuple(_RESIZE))
        _known("interpolation", interpolation, (*_INTERPOLATIONS, *(["random"] * is_training)))
        if not (_is_number(crop_pct) and 0 < crop_pct <= 1):
            raise UserError(f"crop_pct={crop_pct!r} must be a number in (0, 1]")
        for name, chance in (("hflip", hflip), ("vflip", vflip)):
            if not (_is_number(chance) and 0 <= chance <= 1):
                raise UserError(f"{name}={chance!r} must be a probability in [0, 1]")
        if not is_training:
            pct = crop_pct if test_crop else 1.0
            self.steps: Callable[[Image.Image], torch.Tensor] = create_transform(
                self.input_size,
                is_training=False,
                interpolation=interpolation,
                crop_pct=pct,
                crop_mode=_RESIZE[resize],
                use_prefetcher=True,
            )
            return
        first, middle, last = _timm_training(
            self.input_size,
            scale=_range("scale", scale, 1.0) if scale is not None else None,
            ratio=_range("ratio", ratio, None),
            hflip=hflip,
            vflip=vflip,
            auto_augment=auto_augment or None,
            color_jitter=_jitter(color_jitter),
            interpolation=interpolation,
            mean=_mean(mean),
        )
        if scale is None:
            mode = "bicubic" if interpolation == "random" else interpolation
            whole = tv.Resize(self.input_size, interpolation=str_to_interp_mode(mode))
            first = tv.Compose([whole, *first.transforms[1:]])
        moved = [_affine(affine)] if affine is not None else []
        self.steps = tv.Compose([first, *moved, middle, last])

    def __call__(self, image: Image.Image) -> torch.Tensor:
        return self.steps(image)

    def __repr__(self) -> str:
        kind = "training" if self.is_training else "evaluation"
        return f"{type(self).__name__}({kind}, {self.input_size[0]}x{self.input_size[1]})"


def _timm_training(size: tuple[int, int], **options: Any) -> tuple[tv.Compose, ...]:
    try:
        return create_transform(
            size, is_training=True, use_prefetcher=True, separate=True, **options
        )
    except (AssertionError, KeyError, ValueError, IndexError) as error:
        raise UserError(
            f"auto_augment={options['auto_augment']!r} or color_jitter={options['color_jitter']} "
            f"is not understood by timm ({type(error).__name__}: {error}); for example "
            "'rand-m9-mstd0.5-inc1', 'original', 'augmix-m3-w3', or None for none"
        ) from error


def _size(value: int | Sequence[int]) -> tuple[int, int]:
    sides = _numbers(value) or (value, value)
    if len(sides) != 2 or not all(type(side) is int and side > 0 for side in sides):
        raise UserError(f"input_size={value!r} must be a number of pixels or (height, width)")
    return sides


def _range(name: str, value: Sequence[float], top: float | None) -> tuple[float, float]:
    ends = _numbers(value)
    if len(ends) != 2 or not 0 < ends[0] <= ends[1] or (top is not None and ends[1] > top):
        limit = "" if top is None else f" <= {top:g}"
        raise UserError(f"{name}={value!r} must be (low, high) with 0 < low <= high{limit}")
    return ends


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _numbers(value: Any) -> tuple[Any, ...]:
    """``value`` as a tuple if it is a sequence of numbers, otherwise ()."""
    if isinstance(value, str) or not isinstance(value, Sequence):
        return ()
    return tuple(value) if all(map(_is_number, value)) else ()


def _jitter(value: float | Sequence[float] | None) -> float | tuple[float, ...] | None:
    if value is None or value == 0:
        return None
    return tuple(value) if isinstance(value, Sequence) else value


def _mean(value: Sequence[float]) -> tuple[float, ...]:
    shares = _numbers(value)
    if len(shares) != 3 or not all(0 <= share <= 1 for share in shares):
        raise UserError(f"mean={value!r} must be three numbers from 0 to 1 (red, green, blue)")
    return shares


def _affine(options: dict[str, Any]) -> tv.RandomAffine:
    if not isinstance(options, dict):
        raise UserError(f"affine={options!r} must be dict({'=, '.join(_AFFINE)}=) or None")
    for key in options:
        _known("affine key", key, _AFFINE)
    settings = {name: tuple(v) if isinstance(v, list) else v for name, v in options.items()}
    try:
        return tv.RandomAffine(
            degrees=settings.get("degrees", 0),
            translate=settings.get("translate"),
            scale=settings.get("scale"),
            shear=settings.get("shear"),
            fill=settings.get("fill", 0),
            interpolation=tv.InterpolationMode.BILINEAR,
        )
    except (TypeError, ValueError) as error:
        raise UserError(f"affine={dict(options)} is not possible: {error}") from error


def _known(field: str, value: str, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        hint = did_you_mean(value, allowed)
        raise UserError(
            f"{field}='{value}' is not known{'; ' + hint if hint else ''} (allowed: "
            f"{', '.join(allowed)})"
        )
