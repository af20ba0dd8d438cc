"""Any timm model that returns features, under the contract of our backbones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import timm
import torch
from torch import Tensor, nn

from polaformer.backbones.base import Backbone, Size, as_size
from polaformer.backbones.layers import ceil_div, pad_to_multiple
from polaformer.errors import UserError, did_you_mean
from polaformer.registry import MODELS

# What timm raises for a model or an input it cannot handle.
_REFUSALS = (AssertionError, NotImplementedError, RuntimeError, TypeError, ValueError)


@MODELS.register_module()
class TimmBackbone(Backbone):
    """A timm feature extractor as a backbone.

    Some timm models take one image size only, the one they are built for: then give ``img_size``,
    or what the model offers for others, such as ``timm_args=dict(dynamic_img_size=True)``.

    Args:
        model_name: A timm model with ``features_only`` support, such as 'pvt_v2_b0'.
        pretrained: Let timm fetch its weights (needs a network the first time).
        out_indices: Feature levels to return; None returns the last.
        img_size: Image size for models that fix one when built; None keeps the model's own.
        drop_path_rate: Stochastic depth; None keeps the model's own.
        frozen_stages: -1 (train all); timm models cannot be frozen by stage here.
        timm_args: Further arguments of ``timm.create_model``.
        init_cfg: ``dict(type='Pretrained', checkpoint=FILE)`` is read by the runner.

    Raises:
        UserError: For an unknown model, or one whose features are not what it declares.
    """

    stem_names = ("model",)

    def __init__(
        self,
        model_name: str,
        pretrained: bool = False,
        out_indices: Sequence[int] | None = None,
        img_size: int | Size | None = None,
        drop_path_rate: float | None = None,
        frozen_stages: int = -1,
        timm_args: Mapping[str, Any] | None = None,
        init_cfg: dict | None = None,
    ) -> None:
        if frozen_stages != -1:
            raise UserError(f"TimmBackbone: frozen_stages={frozen_stages}; allowed: -1")
        arguments = {"img_size": img_size, "drop_path_rate": drop_path_rate}
        arguments = {key: value for key, value in arguments.items() if value is not None}
        arguments |= dict(timm_args or {})
        with torch.device("meta"):
            features = _create(model_name, features_only=True, **arguments)
            plain = _create(model_name, **arguments)
        info: Any = features.feature_info
        channels, strides = info.channels(), info.reduction()
        size = img_size or getattr(plain, "pretrained_cfg", {}).get("input_size", (3, 224, 224))[1:]
        self.native = as_size(size, "img_size")
        _check_features(model_name, features, self.native, channels, strides)
        wanted = (len(channels) - 1,) if out_indices is None else tuple(out_indices)
        super().__init__(channels, strides, [1] * len(channels), wanted, frozen_stages, init_cfg)
        self.model_name = model_name
        self.undecayed = {_suffix(name) for name in getattr(plain, "no_weight_decay", set)()}
        self.model = _create(
            model_name, features_only=True, pretrained=pretrained, out_indices=wanted, **arguments
        )
        self.channels_last = getattr(self.model, "output_fmt", "NCHW") == "NHWC"

    def get_layer_depth(self, param_name: str, prefix: str = "") -> tuple[int, int]:
        """One depth for the whole model, one for what follows it."""
        return (0 if param_name.startswith(f"{prefix}model.") else 1), 2

    def no_weight_decay_keywords(self) -> set[str]:
        """Parameters that the timm model itself exempts from weight decay."""
        return set(self.undecayed)

    def frozen_modules(self) -> list[nn.Module | nn.Parameter]:
        return []

    def forward(self, images: Tensor) -> tuple[Tensor, ...]:
        size = (images.shape[-2], images.shape[-1])
        try:
            if size != self.native:
                images = pad_to_multiple(images, max(self.strides))
            features = self.model(images)
        except (AssertionError, RuntimeError) as error:
            if size == self.native or isinstance(error, torch.OutOfMemoryError):
                raise
            raise UserError(
                f"TimmBackbone: '{self.model_name}' takes no images of {size[0]} x {size[1]} when "
                f"built for {self.native[0]} x {self.native[1]} (timm: {error}); give the backbone "
                "this img_size, or the images that size"
            ) from error
        maps = []
        for feature, stride in zip(features, self.strides, strict=True):
            feature = feature.permute(0, 3, 1, 2) if self.channels_last else feature
            height, width = ceil_div(size, stride)
            maps.append(feature[..., :height, :width].contiguous())
        return tuple(maps)


def _create(name: str, **arguments: Any) -> nn.Module:
    if not timm.is_model(name):
        hint = did_you_mean(name, timm.list_models())
        raise UserError(f"TimmBackbone: timm has no model '{name}'; {hint}".rstrip("; "))
    try:
        return timm.create_model(name, **arguments)
    except _REFUSALS as error:
        raise UserError(
            f"TimmBackbone: timm cannot build '{name}' as a backbone: {error}"
        ) from error


def _check_features(
    name: str, model: nn.Module, size: Size, channels: Sequence[int], strides: Sequence[int]
) -> None:
    """One forward pass without data: are the features what timm declares?"""
    try:
        maps = model.eval()(torch.zeros(1, 3, *size, device="meta"))
    except _REFUSALS as error:
        raise UserError(
            f"TimmBackbone: '{name}' gives no features at {size[0]} x {size[1]}: {error}"
        ) from error
    last = getattr(model, "output_fmt", "NCHW") == "NHWC"
    for feature, width, stride in zip(maps, channels, strides, strict=True):
        shape = tuple(feature.permute(0, 3, 1, 2).shape if last else feature.shape)
        declared = (1, width, *ceil_div(size, stride))
        if len(shape) != 4 or shape[1] != width or shape[-2] < declared[-2]:
            raise UserError(
                f"TimmBackbone: '{name}' returns features {shape} where timm declares {declared}; "
                "it cannot serve as a backbone"
            )


def _suffix(name: str) -> str:
    """The last part of a parameter's name; feature extractors rename the parts before it."""
    parts = name.split(".")
    return ".".join(parts[-2:]) if parts[-1] in ("weight", "bias") else parts[-1]
