"""Focal losses through mmcv's own functions, against the formula written out per element."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from torch.utils._python_dispatch import TorchDispatchMode

import polaformer  # noqa: F401  (supplies the extension)

pytest.importorskip("mmcv")
from mmcv.ops import SigmoidFocalLoss, sigmoid_focal_loss, softmax_focal_loss

from polaformer.compat.mmcv_ops import focal


def sigmoid_by_formula(logits, targets, gamma, alpha, weight=None):
    """Lin et al., equation 5, for C independent yes-or-no questions per row."""
    out = torch.zeros_like(logits)
    for row, column in torch.cartesian_prod(*map(torch.arange, logits.shape)).tolist():
        probability = 1 / (1 + math.exp(-logits[row, column].item()))
        label = int(targets[row])
        true = label == column
        p, a = (probability, alpha) if true else (1 - probability, 1 - alpha)
        factor = 1.0 if weight is None or not 0 <= label < len(weight) else weight[label].item()
        out[row, column] = -factor * a * (1 - p) ** gamma * math.log(p)
    return out


def sample(rows=12, classes=5, seed=0, dtype=torch.float64):
    """Logits and targets, among them the background (the number of classes)."""
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(rows, classes, dtype=torch.float64, generator=generator) * 3
    targets = torch.arange(rows) % (classes + 1)
    return logits.to(dtype), targets


@pytest.mark.parametrize("gamma, alpha", [(2.0, 0.25), (0.0, 0.5), (1.5, 0.75), (0.5, 0.1)])
@pytest.mark.parametrize("weighted", [False, True])
def test_sigmoid_loss_against_the_formula(gamma, alpha, weighted):
    logits, targets = sample()
    weight = torch.rand(5, dtype=torch.float64) if weighted else None
    expected = sigmoid_by_formula(logits, targets, gamma, alpha, weight)
    loss = sigmoid_focal_loss(logits, targets, gamma, alpha, weight, "none")
    torch.testing.assert_close(loss, expected)
    loss = sigmoid_focal_loss(logits, targets, gamma, alpha, weight, "sum")
    torch.testing.assert_close(loss, expected.sum())
    loss = sigmoid_focal_loss(logits, targets, gamma, alpha, weight, "mean")
    torch.testing.assert_close(loss, expected.sum() / 12)


def test_sigmoid_loss_by_hand():
    """Probability 0.5 everywhere: 0.25 * 0.25 * ln 2 for the class, 0.75 * 0.25 * ln 2 else."""
    loss = sigmoid_focal_loss(torch.zeros(1, 2), torch.tensor([1]), 2.0, 0.25, None, "none")
    expected = torch.tensor([[0.75 * 0.25 * math.log(2), 0.25 * 0.25 * math.log(2)]])
    torch.testing.assert_close(loss, expected)


@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
@pytest.mark.parametrize("gamma", [2.0, 0.0, 0.7])
@pytest.mark.parametrize("weighted", [False, True])
def test_sigmoid_gradient(reduction, gamma, weighted):
    logits, targets = sample()
    weight = torch.rand(5, dtype=torch.float64) if weighted else None

    def loss(x):
        return sigmoid_focal_loss(x, targets, gamma, 0.3, weight, reduction).sum()

    assert torch.autograd.gradcheck(loss, logits.requires_grad_())


def test_small_pieces_give_the_same(monkeypatch):
    logits, targets = sample(rows=40)
    logits.requires_grad_()
    results = []
    for piece in (2**20, 1, 12):
        monkeypatch.setattr(focal, "PIECE", piece)
        loss = sigmoid_focal_loss(logits, targets, 2.0, 0.25, None, "none")
        results.append((loss, *torch.autograd.grad(loss.sum(), logits)))
    torch.testing.assert_close(results[1], results[0])
    torch.testing.assert_close(results[2], results[0])


class LargestResult(TorchDispatchMode):
    """Remembers the number of values of the largest tensor that any operation returns."""

    largest = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        if isinstance(result, torch.Tensor):
            self.largest = max(self.largest, result.numel())
        return result


def test_no_tensor_is_as_large_as_the_logits(monkeypatch):
    monkeypatch.setattr(focal, "PIECE", 100)
    logits, targets = sample(rows=400)
    out = torch.zeros_like(logits)
    with LargestResult() as seen:
        focal.sigmoid_forward(logits, targets, torch.rand(5), out, 2.0, 0.25)
        focal.sigmoid_backward(logits, targets, torch.rand(5), out, 2.0, 0.25)
    assert 0 < seen.largest <= 100


def test_background_and_unknown_labels_have_no_true_class():
    """As in mmcv's kernel, -1 is not ignored: every class is wrong there."""
    logits = sample(rows=3)[0]
    loss = sigmoid_focal_loss(logits, torch.tensor([5, -1, 99]), 2.0, 0.25, None, "none")
    p = logits.sigmoid()
    torch.testing.assert_close(loss, -0.75 * p**2 * (1 - p).log())


@pytest.mark.parametrize("size", [50.0, 200.0, 1e4])
def test_extreme_logits_stay_finite(size):
    """Sure and right costs nothing; sure and wrong costs the logit, and pulls with full weight."""
    logits = torch.tensor([[size, -size], [-size, size]], requires_grad=True)
    loss = sigmoid_focal_loss(logits, torch.tensor([0, 0]), 2.0, 0.25, None, "none")
    torch.testing.assert_close(
        loss.detach(), torch.tensor([[0.0, 0.0], [0.25 * size, 0.75 * size]])
    )
    loss.sum().backward()
    torch.testing.assert_close(logits.grad, torch.tensor([[0.0, 0.0], [-0.25, 0.75]]))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_types_are_computed_in_single_precision(dtype):
    logits, targets = sample(dtype=dtype)
    exact = logits.float().requires_grad_()
    logits.requires_grad_()
    loss = sigmoid_focal_loss(logits, targets, 2.0, 0.25, None, "none")
    full = sigmoid_focal_loss(exact, targets, 2.0, 0.25, None, "none")
    assert loss.dtype == dtype
    assert torch.equal(loss, full.to(dtype))
    loss.sum().backward()
    full.sum().backward()
    assert torch.equal(logits.grad, exact.grad.to(dtype))


@pytest.mark.parametrize("shape", [(0, 5), (3, 0)])
def test_nothing_to_lose(shape):
    logits = torch.zeros(shape, requires_grad=True)
    targets = torch.zeros(shape[0], dtype=torch.long)
    loss = sigmoid_focal_loss(logits, targets, 2.0, 0.25, None, "sum")
    loss.backward()
    assert loss == 0
    assert logits.grad.shape == shape


def test_the_module_with_its_weight():
    logits, targets = sample(dtype=torch.float32)
    weight = torch.rand(5)
    expected = sigmoid_by_formula(logits, targets, 2.0, 0.25, weight).sum() / 12
    torch.testing.assert_close(SigmoidFocalLoss(2.0, 0.25, weight)(logits, targets), expected)


@pytest.mark.slow
def test_agrees_with_the_loss_that_mmdet_uses_on_a_cpu():
    losses = pytest.importorskip("mmdet.models.losses.focal_loss")
    logits, targets = sample(rows=30)
    one_hot = F.one_hot(targets, 6)[:, :5]
    expected = losses.py_sigmoid_focal_loss(logits, one_hot, reduction="none")
    loss = losses.sigmoid_focal_loss(logits, targets, reduction="none")
    torch.testing.assert_close(loss, expected)


@pytest.mark.parametrize("gamma", [2.0, 1.0, 0.0])
@pytest.mark.parametrize("weighted", [False, True])
def test_softmax_loss_against_the_formula(gamma, weighted):
    """Rows of an unknown class are ignored; gamma 0 is alpha times cross entropy."""
    logits, _ = sample(rows=6)
    targets = torch.tensor([0, 4, 2, -1, 3, 1])
    weight = torch.rand(5, dtype=torch.float64) if weighted else None
    reference = logits.clone().requires_grad_()
    p = reference.softmax(1).gather(1, targets.clamp(min=0)[:, None])[:, 0]
    expected = -0.25 * (1 - p) ** gamma * p.log() * (targets >= 0)
    if weighted:
        expected = expected * weight[targets.clamp(min=0)]
    logits.requires_grad_()
    loss = softmax_focal_loss(logits, targets, gamma, 0.25, weight, "none")
    torch.testing.assert_close(loss, expected)
    loss = softmax_focal_loss(logits, targets, gamma, 0.25, weight, "sum")
    torch.testing.assert_close(
        torch.autograd.grad(loss, logits), torch.autograd.grad(expected.sum(), reference)
    )


def test_softmax_loss_of_sure_and_of_no_rows():
    logits = torch.tensor([[500.0, 0.0], [0.0, 500.0]], requires_grad=True)
    loss = softmax_focal_loss(logits, torch.tensor([0, 0]), 0.5, 0.25, None, "none")
    loss.sum().backward()
    assert loss[0] == 0
    assert loss.isfinite().all()
    assert logits.grad.isfinite().all()
    assert softmax_focal_loss(torch.zeros(0, 2), torch.zeros(0).long(), 2, 0.25, None, "sum") == 0
