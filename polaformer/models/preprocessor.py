"""From a batch of uint8 images to what a classifier sees; batch augmentation happens here.

Every random number comes from the global generators of python, numpy and torch, so whoever seeds
these before a step repeats the step exactly.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any

import torch
from mmengine.model import BaseDataPreprocessor
from timm.data.mixup import Mixup, mixup_target
from timm.data.random_erasing import RandomErasing
from torch import Tensor

from polaformer.errors import UserError, did_you_mean
from polaformer.registry import MODELS

IMAGENET_MEAN = (123.675, 116.28, 103.53)
IMAGENET_STD = (58.395, 57.12, 57.375)
ERASING_KEYS = {"prob": "probability", "mode": "mode", "count": "max_count"}
MIXUP_KEYS = tuple(
    name
    for name in inspect.signature(Mixup).parameters
    if name not in ("label_smoothing", "num_classes", "multi_label")
)


@MODELS.register_module()
class ClsPreprocessor(BaseDataPreprocessor):
    """Move to the device, normalise and, in training, erase and mix.

    ``mean`` and ``std`` are per RGB channel in units of 0..255. ``random_erasing`` takes ``prob``,
    ``mode`` ('const', 'rand', 'pixel') and ``count``; ``mixup`` takes the arguments of
    ``timm.data.Mixup``: ``mixup_alpha``, ``cutmix_alpha``, ``switch_prob``, ``prob``, ``mode`` and
    so on. With ``mixup`` the labels of a training batch become class weights [B, num_classes],
    smoothed by ``label_smoothing``; of an odd batch the last image stays unmixed.

    Sources: Zhong et al., arXiv 1708.04896; Zhang et al., arXiv 1710.09412; Yun et al.,
    arXiv 1905.04899.
    """

    mean: Tensor
    std: Tensor

    def __init__(
        self,
        mean: Sequence[float] = IMAGENET_MEAN,
        std: Sequence[float] = IMAGENET_STD,
        mixup: dict | None = None,
        random_erasing: dict | None = None,
        num_classes: int | None = None,
        label_smoothing: float = 0.0,
        non_blocking: bool = True,
    ) -> None:
        super().__init__(non_blocking=non_blocking)
        if len(mean) != len(std) or any(value <= 0 for value in std):
            raise UserError(
                f"data_preprocessor.mean has {len(mean)} and std {len(std)} values: give one of "
                "each per channel, std above 0, in units of 0..255"
            )
        self.register_buffer("mean", torch.tensor(mean).view(1, -1, 1, 1), persistent=False)
        self.register_buffer("std", torch.tensor(std).view(1, -1, 1, 1), persistent=False)
        self.num_classes = num_classes
        self.label_smoothing = label_smoothing
        self.mixup = self._build_mixup(mixup)
        self.erasing = _build_erasing(random_erasing)

    def forward(self, data: dict, training: bool = False) -> dict:
        """Batch in, batch out.

        ``inputs``: uint8 (or float, 0..255) [B, C, H, W], or a list of B such images of one size;
        becomes float32, normalised. ``labels``: int64 [B]; with mixup and ``training`` float
        [B, K]. Other entries are only moved to the device. Raises UserError for images of several
        sizes.
        """
        batch: dict[str, Any] = dict(data)
        batch["inputs"] = _stacked(batch["inputs"])
        batch = self.cast_data(batch)  # type: ignore[assignment]
        images = batch["inputs"]
        if images.shape[1] != self.mean.shape[1]:
            raise UserError(
                f"images have {images.shape[1]} channels, data_preprocessor.mean has "
                f"{self.mean.shape[1]} values"
            )
        images = (images.float() - self.mean) / self.std
        if training and self.erasing is not None:
            self.erasing.device = images.device
            images = self.erasing(images)
        batch["inputs"] = images
        labels = batch.get("labels")
        if isinstance(labels, Sequence) and not isinstance(labels, str):
            batch["labels"] = torch.as_tensor(labels, device=images.device)
        if training and self.mixup is not None and labels is not None:
            batch["inputs"], batch["labels"] = self._mix(images, batch["labels"])
        return batch

    def _mix(self, images: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        """Mix the even part of the batch; a last odd image keeps its smoothed label."""
        assert self.mixup is not None
        targets = mixup_target(labels, self.num_classes, smoothing=self.label_smoothing)
        even = len(images) // 2 * 2
        if even:
            images[:even], targets[:even] = self.mixup(images[:even], labels[:even])
        return images, targets

    def _build_mixup(self, cfg: dict | None) -> Mixup | None:
        if not cfg:
            return None
        where = "data_preprocessor.mixup"
        _check_keys(cfg, MIXUP_KEYS, where)
        if self.num_classes is None:
            raise UserError(f"{where} needs data_preprocessor.num_classes")
        if cfg.get("mode", "batch") not in ("batch", "pair", "elem"):
            raise UserError(f"{where}.mode is '{cfg['mode']}'; allowed: batch, pair, elem")
        mixup = Mixup(**cfg, num_classes=self.num_classes, label_smoothing=self.label_smoothing)
        if mixup.mixup_alpha <= 0 and mixup.cutmix_alpha <= 0:
            raise UserError(f"{where} mixes nothing: set mixup_alpha or cutmix_alpha above 0")
        return mixup


def _build_erasing(cfg: dict | None) -> RandomErasing | None:
    if not cfg or not cfg.get("prob", 0.25):
        return None
    where = "data_preprocessor.random_erasing"
    _check_keys(cfg, tuple(ERASING_KEYS), where)
    if cfg.get("mode", "pixel") not in ("const", "rand", "pixel"):
        raise UserError(f"{where}.mode is '{cfg['mode']}'; allowed: const, rand, pixel")
    values = {"prob": 0.25, "mode": "pixel", "count": 1, **cfg}
    return RandomErasing(**{ERASING_KEYS[name]: value for name, value in values.items()})


def _check_keys(cfg: dict, allowed: Sequence[str], where: str) -> None:
    for key in cfg:
        if key not in allowed:
            hint = f"{did_you_mean(key, allowed)} ".lstrip()
            raise UserError(f"{where}.{key} is unknown; {hint}allowed: {', '.join(allowed)}")


def _stacked(inputs: Tensor | Sequence[Tensor]) -> Tensor:
    if isinstance(inputs, Tensor):
        return inputs
    sizes = {tuple(image.shape) for image in inputs}
    if len(sizes) != 1:
        raise UserError(
            f"one batch holds images of several sizes {sorted(sizes)}; add a resize or crop to the "
            "dataset's transforms, or use batch_size=1"
        )
    return torch.stack(list(inputs))
