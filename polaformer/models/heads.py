"""Classification heads: from a backbone's feature maps to class scores."""

from __future__ import annotations

from mmengine.model import BaseModule
from torch import Tensor, nn

from polaformer.errors import UserError
from polaformer.registry import MODELS


@MODELS.register_module()
class LinearHead(BaseModule):
    """Global average of the last feature map, then one linear layer: the head of Swin and PVT.

    ``in_channels=None`` lets the classifier fill in what its backbone declares. The output norm,
    where a backbone has one, belongs to the backbone. Weights start truncated normal
    (``init_std``), biases zero. ``loss`` defaults to cross entropy with smoothing 0.1.
    """

    def __init__(
        self,
        num_classes: int,
        in_channels: int | None = None,
        dropout: float = 0.0,
        init_std: float = 0.02,
        loss: dict | None = None,
    ) -> None:
        super().__init__()
        if not isinstance(num_classes, int) or num_classes < 1:
            raise UserError(f"LinearHead.num_classes is {num_classes!r}; allowed: an integer >= 1")
        if in_channels is None:
            raise UserError("LinearHead.in_channels is missing: give the backbone's last width")
        if not 0.0 <= dropout < 1.0:
            raise UserError(f"LinearHead.dropout is {dropout}; allowed: 0 <= value < 1")
        self.num_classes = num_classes
        self.in_channels = in_channels
        self.dropout = nn.Dropout(dropout)
        self.fc = nn.Linear(in_channels, num_classes)
        nn.init.trunc_normal_(self.fc.weight, std=init_std)
        nn.init.zeros_(self.fc.bias)
        self.loss_module = MODELS.build(loss or {"type": "polaformer.ClassificationLoss"})

    def forward(self, feats: tuple[Tensor, ...]) -> Tensor:
        """Logits [B, K] of the last map [B, C, H, W]; any H and W."""
        return self.fc(self.dropout(feats[-1].mean(dim=(2, 3))))
