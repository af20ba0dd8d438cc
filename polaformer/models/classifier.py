"""Image classifier: a registered backbone, a head, and the three ways mmengine calls a model."""

from __future__ import annotations

from typing import Any

import torch
from mmengine.model import BaseModel
from torch import Tensor, nn

from polaformer.errors import UserError, did_you_mean
from polaformer.registry import MODELS

MODES = ("tensor", "loss", "predict")


@MODELS.register_module()
class ImageClassifier(BaseModel):
    """Backbone, head and data preprocessor, each a config.

    What one part knows is not repeated in another: the head takes ``in_channels`` from the
    backbone, the preprocessor takes ``num_classes`` and ``label_smoothing`` from the head, unless
    given. Raises UserError where they are given and disagree.
    """

    def __init__(
        self,
        backbone: dict,
        head: dict,
        data_preprocessor: dict | nn.Module | None = None,
        init_cfg: dict | None = None,
    ) -> None:
        built_backbone = MODELS.build(backbone)
        built_head = MODELS.build(_with_channels(head, built_backbone))
        if data_preprocessor is None:
            data_preprocessor = {"type": "polaformer.ClsPreprocessor"}
        if isinstance(data_preprocessor, dict):
            data_preprocessor = MODELS.build(_with_classes(data_preprocessor, built_head))
        super().__init__(data_preprocessor=data_preprocessor, init_cfg=init_cfg)
        self.backbone = built_backbone
        self.head = built_head

    def forward(
        self,
        inputs: Tensor,
        labels: Tensor | None = None,
        indices: Tensor | None = None,
        mode: str = "tensor",
    ) -> Tensor | dict[str, Tensor] | list[dict[str, Any]]:
        """Run on normalised images [B, C, H, W] of any size.

        ``'tensor'``: logits [B, K]. ``'loss'``: ``{'loss': scalar}``; ``labels`` are class indices
        [B] or class weights [B, K]. ``'predict'``: one dict per image with ``scores`` (softmax,
        float32, on the CPU), and ``label``, ``loss``, ``index`` where ``labels`` or ``indices`` are
        given.
        """
        if mode not in MODES:
            hint = did_you_mean(mode, MODES)
            raise ValueError(f"mode is '{mode}'; allowed: {', '.join(MODES)}. {hint}".strip())
        if mode == "loss" and labels is None:
            raise UserError("the training batch has no 'labels'; check train_dataloader.dataset")
        logits = self.head(self.extract_feat(inputs))
        if mode == "loss":
            return {"loss": self.head.loss_module(logits, labels)}
        if mode == "predict":
            return self._predictions(logits, labels, indices)
        return logits

    def _dump_init_info(self) -> None:
        """mmengine logs how each parameter was initialised; ours are when they are built."""

    def extract_feat(self, inputs: Tensor) -> tuple[Tensor, ...]:
        """The backbone's feature maps, coarsest last."""
        return self.backbone(inputs)

    def _predictions(
        self, logits: Tensor, labels: Tensor | None, indices: Tensor | None
    ) -> list[dict[str, Any]]:
        scores = torch.softmax(logits.float(), dim=-1).cpu()
        samples: list[dict[str, Any]] = [{"scores": score} for score in scores]
        columns: dict[str, list] = {}
        if labels is not None:
            columns["label"] = labels.tolist()
            columns["loss"] = self.head.loss_module.per_sample(logits, labels).tolist()
        if indices is not None:
            columns["index"] = indices.tolist()
        for name, values in columns.items():
            for sample, value in zip(samples, values, strict=True):
                sample[name] = value
        return samples


def _with_channels(head: dict, backbone: nn.Module) -> dict:
    """The head's config with ``in_channels`` as the backbone declares them."""
    channels = getattr(backbone, "channels", None)
    if channels is None:
        return head
    given = head.get("in_channels")
    if given is not None and given != channels[-1]:
        raise UserError(
            f"model.head.in_channels is {given}, but the last map of {type(backbone).__name__} has "
            f"{channels[-1]} channels; leave in_channels out to take it from the backbone"
        )
    return {**head, "in_channels": channels[-1]}


def _with_classes(preprocessor: dict, head: nn.Module) -> dict:
    """The preprocessor's config with the head's class count and label smoothing, unless given."""
    given = preprocessor.get("num_classes")
    if given is not None and given != head.num_classes:
        raise UserError(
            f"model.data_preprocessor.num_classes is {given}, but model.head.num_classes is "
            f"{head.num_classes}; leave the former out to take it from the head"
        )
    if not str(preprocessor.get("type", "")).endswith("ClsPreprocessor"):
        return preprocessor
    smoothing = getattr(head.loss_module, "label_smoothing", 0.0)
    return {"label_smoothing": smoothing, **preprocessor, "num_classes": head.num_classes}
