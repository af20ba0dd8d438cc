from __future__ import annotations

import pytest
import torch
from torch import nn

from polaformer.config import measure as m

# Parameters in M and multiply-adds in G of the released models, measured on the published code
# with torch's FLOP counter at 224 pixels (B-384 at 384).
PUBLISHED = {
    ("PolaSwin", "tiny", 224): (29.286, 4.659),
    ("PolaSwin", "small", 224): (50.604, 8.910),
    ("PolaSwin", "base", 224): (89.138, 15.708),
    ("PolaSwin", "base", 384): (91.599, 47.224),
    ("PolaPVT", "tiny", 224): (12.925, 2.257),
    ("PolaPVT", "small", 224): (23.157, 4.469),
    ("PolaPVT", "medium", 224): (39.966, 7.815),
    ("PolaPVT", "large", 224): (54.367, 11.517),
}


def classifier(kind: str, arch: str, size: int) -> nn.Module:
    config = dict(
        type="polaformer.ImageClassifier",
        backbone=dict(type=f"polaformer.{kind}", arch=arch, img_size=size),
        head=dict(type="polaformer.LinearHead", num_classes=1000),
    )
    return m.build_on_meta(config, "polaformer")


@pytest.mark.parametrize("kind, arch, size", PUBLISHED)
def test_published_sizes(kind, arch, size):
    cost = m.measure(classifier(kind, arch, size), (size, size))
    params, macs = PUBLISHED[kind, arch, size]
    assert cost.params / 1e6 == pytest.approx(params, rel=1e-3)
    assert cost.macs / 1e9 == pytest.approx(macs, rel=1e-3)
    assert cost.trainable == cost.params


class Two(nn.Module):
    """Two linear layers around a ReLU: everything about it can be counted by hand."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(8, 16)
        self.second = nn.Linear(16, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.second(torch.relu(self.first(x)))


def test_kept_activations_counted_by_hand():
    with torch.device("meta"):
        model = Two()
    cost = m.measure(model, (5, 8))
    rows = 3 * 5
    assert cost.params == 8 * 16 + 16 + 16 * 4 + 4
    assert cost.macs == rows * (8 * 16 + 16 * 4)
    # Kept: the input [rows, 8] and relu's output [rows, 16], which the second layer shares.
    assert cost.activation_bytes == 4 * rows * (8 + 16)


def test_half_precision_keeps_less():
    full = m.measure(classifier("PolaPVT", "nano", 64), (64, 64))
    half = m.measure(classifier("PolaPVT", "nano", 64), (64, 64), torch.bfloat16)
    assert half.macs == full.macs
    assert 0.4 * full.activation_bytes < half.activation_bytes < 0.95 * full.activation_bytes


@pytest.mark.parametrize(
    "config, count",
    [
        (dict(type="AdamW", lr=1e-3), 2),
        (dict(type="SGD", lr=0.1), 0),
        (dict(type="SGD", lr=0.1, momentum=0.9), 1),
    ],
)
def test_optimizer_states(config, count):
    assert m.states_per_weight(config) == count


def test_memory_adds_up():
    cost = m.Cost(params=10, trainable=6, macs=0, input_size=(1, 1), activation_bytes=100)
    memory = m.training_memory(cost, batch_size=3, states_per_weight=2, ema=True)
    assert (memory.weights, memory.gradients, memory.optimizer) == (40, 24, 48)
    assert (memory.ema, memory.activations, memory.total) == (40, 300, 452)
