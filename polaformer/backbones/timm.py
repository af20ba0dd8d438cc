"""Any timm model that returns features, under the contract of our backbones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import timm
from torch import Tensor, nn

from polaformer.backbones.base import Backbone, Size
from polaformer.backbones.layers import pad_to_multiple
from polaformer.errors import UserError, did_you_mean
from polaformer.registry import MODELS


@MODELS.register_module()
class TimmBackbone(Backbone):
    """A timm feature extractor as a backbone.

    Args:
        model_name: A timm model with ``features_only`` support, such as 'pvt_v2_b0'.
        pretrained: Let timm fetch its weights (needs a network the first time).
        out_indices: Feature levels to return; None returns the last.
        img_size: Image size for models that fix one when built; None keeps the model's own.
        drop_path_rate: Stochastic depth; None keeps the model's own.
        frozen_stages: -1 (train all); timm models cannot be frozen by stage here.
        init_cfg: ``dict(type='Pretrained', checkpoint=FILE)`` is read by the runner.

    Raises:
        UserError: For an unknown model, or one that returns no features.
    """

    def __init__(
        self,
        model_name: str,
        pretrained: bool = False,
        out_indices: Sequence[int] | None = None,
        img_size: int | Size | None = None,
        drop_path_rate: float | None = None,
        frozen_stages: int = -1,
        init_cfg: dict | None = None,
    ) -> None:
        if frozen_stages != -1:
            raise UserError(f"TimmBackbone: frozen_stages={frozen_stages}; allowed: -1")
        model = _create(model_name, pretrained, img_size, drop_path_rate, None)
        info: Any = model.feature_info
        channels, strides = info.channels(), info.reduction()
        levels = len(channels)
        wanted = (levels - 1,) if out_indices is None else tuple(out_indices)
        super().__init__(channels, strides, [1] * levels, wanted, frozen_stages, init_cfg)
        self.model_name = model_name
        self.model = _create(model_name, pretrained, img_size, drop_path_rate, wanted)
        self.channels_last = getattr(self.model, "output_fmt", "NCHW") == "NHWC"

    stem_names = ("model",)

    def get_layer_depth(self, param_name: str, prefix: str = "") -> tuple[int, int]:
        """One depth for the whole model, one for what follows it."""
        return (0 if param_name.startswith(f"{prefix}model.") else 1), 2

    def no_weight_decay_keywords(self) -> set[str]:
        """Parameters that the timm model itself exempts from weight decay."""
        source = getattr(self.model, "model", self.model)
        names = getattr(source, "no_weight_decay", set)
        return set(names())

    def frozen_modules(self) -> list[nn.Module | nn.Parameter]:
        return []

    def forward(self, images: Tensor) -> tuple[Tensor, ...]:
        height, width = images.shape[-2:]
        maps = []
        for feature, stride in zip(
            self.model(pad_to_multiple(images, max(self.strides))), self.strides, strict=True
        ):
            feature = feature.permute(0, 3, 1, 2) if self.channels_last else feature
            maps.append(feature[..., : -(-height // stride), : -(-width // stride)].contiguous())
        return tuple(maps)


def _create(
    name: str,
    pretrained: bool,
    img_size: int | Size | None,
    drop_path_rate: float | None,
    out_indices: tuple[int, ...] | None,
) -> nn.Module:
    if not timm.is_model(name):
        hint = did_you_mean(name, timm.list_models())
        raise UserError(f"TimmBackbone: timm has no model '{name}'; {hint}".rstrip("; "))
    arguments: dict = {"features_only": True, "pretrained": pretrained}
    if img_size is not None:
        arguments["img_size"] = img_size
    if drop_path_rate is not None:
        arguments["drop_path_rate"] = drop_path_rate
    if out_indices is not None:
        arguments["out_indices"] = out_indices
    try:
        return timm.create_model(name, **arguments)
    except (RuntimeError, TypeError, AssertionError, NotImplementedError, ValueError) as error:
        raise UserError(
            f"TimmBackbone: timm cannot build '{name}' as a backbone: {error}"
        ) from error
