"""Segmentor: a registered backbone with mmseg's heads, predicting without full-size class maps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from mmengine.model import BaseModel
from mmengine.registry import MODELS as ALL_MODELS
from mmengine.structures import BaseDataElement, PixelData
from torch import Tensor, nn

from polaformer.errors import UserError, did_you_mean
from polaformer.registry import MODELS

MODES = ("tensor", "loss", "predict")


@MODELS.register_module()
class Segmentor(BaseModel):
    """Backbone, neck, a head that decides and heads that only help in training, each a config."""

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
        self.backbone = ALL_MODELS.build(backbone)
        if neck is not None:
            self.neck = ALL_MODELS.build(neck)
        self.decode_head = ALL_MODELS.build(decode_head)
        if isinstance(auxiliary_head, Sequence):
            self.auxiliary_head = nn.ModuleList([ALL_MODELS.build(h) for h in auxiliary_head])
        elif auxiliary_head is not None:
            self.auxiliary_head = ALL_MODELS.build(auxiliary_head)
        self.train_cfg, self.test_cfg = train_cfg, test_cfg

    def forward(
        self, inputs: Tensor, data_samples: list[Any] | None = None, mode: str = "tensor"
    ) -> Any:
        """Run on normalised images [B, 3, H, W]."""
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
        """The maps that the heads get."""
        maps = self.backbone(inputs)
        return self.neck(maps) if hasattr(self, "neck") else maps

    def loss(self, inputs: Tensor, data_samples: list[Any] | None) -> dict[str, Tensor]:
        """Losses of all heads, named ``decode.*``, ``aux.*`` or ``aux_0.*``."""
        if not data_samples or "gt_sem_seg" not in data_samples[0]:
            raise UserError("the training batch has no 'gt_sem_seg'; is LoadMask in its pipeline?")
        maps = self.extract_feat(inputs)
        heads = {"decode": self.decode_head}
        auxiliary = getattr(self, "auxiliary_head", None)
        if isinstance(auxiliary, nn.ModuleList):
            heads.update({f"aux_{i}": head for i, head in enumerate(auxiliary)})
        elif auxiliary is not None:
            heads["aux"] = auxiliary
        return {
            f"{name}.{key}": value
            for name, head in heads.items()
            for key, value in head.loss(maps, data_samples, self.train_cfg).items()
        }

    def predict(self, inputs: Tensor, data_samples: list[Any] | None = None) -> list[Any]:
        """Labels of every image at its original size."""
        logits = self.decode_head(self.extract_feat(inputs)).float()
        align = self.decode_head.align_corners
        logits = F.interpolate(logits, inputs.shape[2:], mode="bilinear", align_corners=align)
        samples = data_samples or [BaseDataElement() for _ in logits]
        for sample, one in zip(samples, logits, strict=True):
            size = sample.metainfo.get("ori_shape", inputs.shape[2:])[:2]
            full = F.interpolate(one[None], size, mode="bilinear", align_corners=align)[0]
            sample.pred_sem_seg = PixelData(data=full.argmax(dim=0, keepdim=True).to(torch.uint8))
            truth = sample.get("gt_sem_seg")
            if truth is not None and truth.shape == tuple(size):
                target = truth.data[0].to(full.device)
                losses = F.cross_entropy(
                    full[None], target[None], ignore_index=255, reduction="none"
                )
                count = int((target != 255).sum())
                sample.set_metainfo({"pixel_loss": (losses.double().sum().item(), count)})
        return samples
