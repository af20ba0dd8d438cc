"""Segmentor: a registered backbone with mmseg's heads, predicting without full-size class maps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from mmengine.model import BaseModel
from mmengine.registry import MODELS as ALL_MODELS
from mmengine.structures import BaseDataElement, PixelData
from torch import Tensor, nn

from polaformer.errors import UserError, did_you_mean
from polaformer.models.segmentation_inference import (
    FLIPS,
    Source,
    View,
    WholeLogits,
    WindowLogits,
    label_image,
    strips_of_view,
)
from polaformer.models.segmentation_settings import settings_of
from polaformer.registry import MODELS

MODES = ("tensor", "loss", "predict")


@MODELS.register_module()
class Segmentor(BaseModel):
    """Backbone, neck, a head that decides and heads that only help in training, each a config.

    The keys, the names of parameters and losses, and the predictions are those of mmseg's
    EncoderDecoder, whose checkpoints load; what differs is memory: labels are made strip by strip
    (see ``segmentation_inference``), so no prediction carries ``seg_logits``.

    Args:
        auxiliary_head: one head or a list of them.
        train_cfg: handed to the heads' ``loss``.
        test_cfg: see ``segmentation_settings.InferenceSettings``; the whole image by default.

    Raises:
        UserError: a ``test_cfg`` with an unknown key or mode, or windows that leave pixels out.
    """

    def __init__(
        self,
        backbone: dict,
        decode_head: dict,
        neck: dict | None = None,
        auxiliary_head: dict | Sequence[dict] | None = None,
        train_cfg: dict | None = None,
        test_cfg: Mapping[str, Any] | None = None,
        data_preprocessor: dict | nn.Module | None = None,
        init_cfg: dict | None = None,
    ) -> None:
        super().__init__(data_preprocessor=data_preprocessor, init_cfg=init_cfg)
        self.train_cfg, self.test_cfg = train_cfg, test_cfg
        self.settings = settings_of(test_cfg or {})
        self.backbone = ALL_MODELS.build(backbone)
        if neck is not None:
            self.neck = ALL_MODELS.build(neck)
        self.decode_head = ALL_MODELS.build(decode_head)
        if isinstance(auxiliary_head, Sequence):
            self.auxiliary_head = nn.ModuleList([ALL_MODELS.build(h) for h in auxiliary_head])
        elif auxiliary_head is not None:
            self.auxiliary_head = ALL_MODELS.build(auxiliary_head)
        self.align_corners: bool = self.decode_head.align_corners
        self.num_classes: int = self.decode_head.num_classes
        self.out_channels: int = self.decode_head.out_channels
        threshold = self.decode_head.threshold
        self.threshold: float = 0.5 if threshold is None else threshold

    def forward(
        self, inputs: Tensor, data_samples: list[Any] | None = None, mode: str = "tensor"
    ) -> Tensor | dict[str, Tensor] | list[Any]:
        """Run on normalised images [B, 3, H, W] of any size.

        ``'tensor'``: the head's logits [B, C, h, w]. ``'loss'``: the losses of all heads, named
        'decode.loss_ce', 'aux.loss_ce' or, in a list, 'aux_0.loss_ce', with 'decode.acc_seg' and so
        on; samples hold ``gt_sem_seg``, int64 [1, H, W], 255 ignored. ``'predict'``: the samples;
        see ``predict``.
        """
        if mode not in MODES:
            hint = did_you_mean(mode, MODES)
            raise ValueError(f"mode is '{mode}'; allowed: {', '.join(MODES)}. {hint}".strip())
        if mode == "loss":
            return self.loss(inputs, data_samples)
        if mode == "predict":
            return self.predict(inputs, data_samples)
        return self.decode_head(self.extract_feat(inputs))

    def _dump_init_info(self) -> None:
        """mmengine logs how each parameter was initialised; ours are when they are built."""

    def extract_feat(self, inputs: Tensor) -> Sequence[Tensor]:
        """The maps that the heads get: the neck's, or the backbone's."""
        maps = self.backbone(inputs)
        return self.neck(maps) if hasattr(self, "neck") else maps

    def loss(self, inputs: Tensor, data_samples: list[Any] | None) -> dict[str, Tensor]:
        """Losses and accuracies of all heads."""
        if not data_samples or any("gt_sem_seg" not in sample for sample in data_samples):
            raise UserError(
                "the training batch has no 'gt_sem_seg'; train_dataloader.dataset.pipeline needs "
                "polaformer.LoadMask and, last, PackSegInputs"
            )
        maps = self.extract_feat(inputs)
        return {
            f"{name}.{key}": value
            for name, head in self._heads()
            for key, value in head.loss(maps, data_samples, self.train_cfg).items()
        }

    def _heads(self) -> list[tuple[str, Any]]:
        """All heads and what their losses are called."""
        heads: list[tuple[str, Any]] = [("decode", self.decode_head)]
        auxiliary = getattr(self, "auxiliary_head", None)
        if isinstance(auxiliary, nn.ModuleList):
            return heads + [(f"aux_{i}", head) for i, head in enumerate(auxiliary)]
        return heads if auxiliary is None else [*heads, ("aux", auxiliary)]

    @torch.no_grad()
    def predict(self, inputs: Tensor, data_samples: list[Any] | None = None) -> list[Any]:
        """The samples with their labels.

        Each gets ``pred_sem_seg.data``, uint8 [1, H, W] (int32 beyond 255 classes) at its
        'ori_shape', upright and without padding. Where it holds a ``gt_sem_seg`` of that size and
        was not flipped, its metainfo gets 'pixel_loss': the sum of the cross entropy over the
        pixels that are not 255, and their number.
        """
        samples = data_samples or [BaseDataElement() for _ in inputs]
        sources, channels = self.sources(inputs), self.out_channels
        for sample, source in zip(samples, sources, strict=True):
            view = view_of(sample, inputs.shape[-2:])
            strips = strips_of_view(source, view)
            truth = self.truth_of(sample, view)
            put_labels(sample, *label_image(strips, view.size, channels, self.threshold, truth))
        return samples

    def truth_of(self, sample: Any, view: View) -> Tensor | None:
        """The true labels [H, W] of an upright sample, if they are wanted and of its size."""
        truth = sample.get("gt_sem_seg") if self.settings.pixel_loss else None
        if truth is None or view.flip is not None or tuple(truth.shape) != view.size:
            return None
        return truth.data[0]

    def sources(self, inputs: Tensor) -> list[Source]:
        """Where the logits of each image of a batch come from."""
        size = (inputs.shape[-2], inputs.shape[-1])
        if self.settings.mode == "whole":
            logits = self._logits(inputs)
            return [WholeLogits(one, size, self.align_corners) for one in logits]
        crop, stride = self.settings.crop_size, self.settings.stride
        assert crop is not None
        assert stride is not None
        channels, batch = self.out_channels, self.settings.batch
        return [
            WindowLogits(self._logits, image, crop, stride, self.align_corners, channels, batch)
            for image in inputs
        ]

    def _logits(self, inputs: Tensor) -> Tensor:
        """The head's logits of images [B, 3, H, W], before mmseg's heads would resize them."""
        maps = self.extract_feat(inputs)
        if _predicts_plainly(self.decode_head):
            return self.decode_head(maps)
        size = inputs.shape[-2:]
        metas = [{"img_shape": size, "ori_shape": size, "pad_shape": size} for _ in inputs]
        return self.decode_head.predict(maps, metas, self.test_cfg)


def _predicts_plainly(head: nn.Module) -> bool:
    """Whether a head's prediction is its forward pass, resized."""
    names = ("predict", "predict_by_feat")
    return all(getattr(type(head), name).__qualname__ == f"BaseDecodeHead.{name}" for name in names)


def view_of(sample: Any, size: Sequence[int]) -> View:
    """How a sample's image became the model's input of ``size``."""
    meta = sample.metainfo
    flip = meta.get("flip_direction") if meta.get("flip") else None
    if meta.get("flip") and flip not in FLIPS:
        raise UserError(
            f"a flipped image has flip_direction={flip!r}; allowed: "
            f"{', '.join(name for name in FLIPS if name)}"
        )
    padding = meta.get("img_padding_size", meta.get("padding_size", (0, 0, 0, 0)))
    height, width = meta.get("ori_shape", size)[:2]
    return View((height, width), tuple(padding), flip)


def put_labels(sample: Any, labels: Tensor, loss: tuple[float, int] | None) -> None:
    """Store what was predicted in a sample."""
    sample.pred_sem_seg = PixelData(data=labels)
    if loss is not None:
        sample.set_metainfo({"pixel_loss": loss})
