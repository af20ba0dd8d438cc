"""Classification losses: one config name over timm's losses, always computed in float32."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from timm.loss import BinaryCrossEntropy, LabelSmoothingCrossEntropy, SoftTargetCrossEntropy
from torch import Tensor, nn

from polaformer.errors import UserError, did_you_mean
from polaformer.registry import MODELS

KINDS = ("ce", "bce")


@MODELS.register_module()
class ClassificationLoss(nn.Module):
    """Mean loss over a batch of class indices [B] (int64) or class weights [B, K] (float).

    ``kind='ce'`` is cross entropy, ``'bce'`` one binary cross entropy per class.
    ``label_smoothing`` in [0, 1) applies to class indices only: mixed targets are smoothed where
    they are made, in the data preprocessor. Raises UserError for a value outside these ranges.
    """

    def __init__(self, label_smoothing: float = 0.1, kind: str = "ce") -> None:
        super().__init__()
        if kind not in KINDS:
            hint = f"{did_you_mean(kind, KINDS)} ".lstrip()
            raise UserError(f"ClassificationLoss.kind is '{kind}'; {hint}allowed: ce, bce")
        if not 0.0 <= label_smoothing < 1.0:
            raise UserError(
                f"ClassificationLoss.label_smoothing is {label_smoothing}; allowed: 0 <= value < 1"
            )
        self.label_smoothing = label_smoothing
        self.kind = kind
        self.on_indices: nn.Module
        self.on_weights: nn.Module
        if kind == "bce":
            self.on_indices = self.on_weights = BinaryCrossEntropy(smoothing=label_smoothing)
        else:
            self.on_indices = LabelSmoothingCrossEntropy(smoothing=label_smoothing)
            self.on_weights = SoftTargetCrossEntropy()

    def forward(self, logits: Tensor, target: Tensor) -> Tensor:
        """Scalar loss of ``logits`` [B, K]; see the class for ``target``."""
        with torch.autocast(logits.device.type, enabled=False):
            logits = logits.float()
            if target.ndim == 2:
                return self.on_weights(logits, target.float())
            return self.on_indices(logits, target)

    @staticmethod
    def per_sample(logits: Tensor, labels: Tensor) -> Tensor:
        """Plain cross entropy of each sample, [B] float32: the validation loss."""
        with torch.autocast(logits.device.type, enabled=False):
            return F.cross_entropy(logits.float(), labels, reduction="none")
