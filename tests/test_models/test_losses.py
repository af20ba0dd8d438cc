from __future__ import annotations

import math

import pytest
import torch

from polaformer.errors import UserError
from polaformer.models import ClassificationLoss

LOGITS = torch.tensor([[2.0, 0.0, -1.0], [0.5, 1.5, 0.0]])
LABELS = torch.tensor([0, 2])


def log_softmax(row: list[float]) -> list[float]:
    total = math.log(sum(math.exp(value) for value in row))
    return [value - total for value in row]


def smoothed(label: int, smoothing: float) -> list[float]:
    return [(1 - smoothing) * (k == label) + smoothing / 3 for k in range(3)]


@pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.3])
def test_smoothed_cross_entropy_by_hand(smoothing):
    expected = 0.0
    for row, label in zip(LOGITS.tolist(), LABELS.tolist(), strict=True):
        weights = smoothed(label, smoothing)
        expected -= sum(w * lp for w, lp in zip(weights, log_softmax(row), strict=True)) / 2
    loss = ClassificationLoss(label_smoothing=smoothing)(LOGITS, LABELS)
    assert loss.item() == pytest.approx(expected, abs=1e-6)


def test_weights_are_not_smoothed_again():
    weights = torch.tensor([[1.0, 0.0, 0.0], [0.0, 0.25, 0.75]])
    rows = [log_softmax(row) for row in LOGITS.tolist()]
    expected = -(rows[0][0] + 0.25 * rows[1][1] + 0.75 * rows[1][2]) / 2
    loss = ClassificationLoss(label_smoothing=0.1)(LOGITS, weights)
    assert loss.item() == pytest.approx(expected, abs=1e-6)


def test_bce_by_hand():
    def bce(value: float, target: float) -> float:
        p = 1 / (1 + math.exp(-value))
        return -(target * math.log(p) + (1 - target) * math.log(1 - p))

    expected = sum(
        bce(value, target) / 6
        for row, label in zip(LOGITS.tolist(), LABELS.tolist(), strict=True)
        for value, target in zip(row, smoothed(label, 0.1), strict=True)
    )
    loss = ClassificationLoss(label_smoothing=0.1, kind="bce")(LOGITS, LABELS)
    assert loss.item() == pytest.approx(expected, abs=1e-6)


def test_per_sample_is_plain_cross_entropy():
    per_sample = ClassificationLoss(label_smoothing=0.1).per_sample(LOGITS, LABELS)
    expected = [-log_softmax(LOGITS[0].tolist())[0], -log_softmax(LOGITS[1].tolist())[2]]
    assert per_sample.tolist() == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("target", [LABELS, torch.nn.functional.one_hot(LABELS, 3).float()])
def test_half_logits_under_autocast_give_a_float32_loss(dtype, target):
    loss_module = ClassificationLoss(label_smoothing=0.1)
    with torch.autocast("cpu", dtype):
        loss = loss_module(LOGITS.to(dtype), target)
    assert loss.dtype == torch.float32
    assert loss.item() == pytest.approx(loss_module(LOGITS.to(dtype).float(), target).item())


@pytest.mark.parametrize(
    "arguments, words",
    [
        ({"kind": "bcee"}, "did you mean 'bce'"),
        ({"label_smoothing": 1.0}, "label_smoothing is 1.0"),
        ({"label_smoothing": -0.1}, "0 <= value < 1"),
    ],
)
def test_values_out_of_range_are_named(arguments, words):
    with pytest.raises(UserError, match=words):
        ClassificationLoss(**arguments)
