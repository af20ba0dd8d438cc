"""Every operation gives on a GPU what it gives on the CPU, gradients and half types included."""

from __future__ import annotations

import pytest
import torch

import polaformer  # noqa: F401  (supplies the extension)

pytest.importorskip("mmcv")
from mmcv.ops import (
    batched_nms,
    deform_conv2d,
    modulated_deform_conv2d,
    nms,
    roi_align,
    roi_pool,
    sigmoid_focal_loss,
    soft_nms,
    softmax_focal_loss,
)

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")

REGIONS = torch.tensor(
    [[0, 0.3, 1.2, 9.7, 6.4], [1, -3, -2, 4, 3.5], [0, 6, 5, 40, 30], [1, 3, 3, 3, 3]]
)


def regions_of(operation, *settings):
    def call(input):
        return operation(input, REGIONS.to(input), *settings)

    return call, (torch.randn(2, 5, 8, 11),)


def cases():
    """Name, function and the tensors whose gradients count."""
    torch.manual_seed(0)
    input, weight = torch.randn(2, 4, 9, 8), torch.randn(6, 2, 3, 3)
    offset, mask = torch.randn(2, 36, 9, 8), torch.rand(2, 18, 9, 8)
    logits, labels = torch.randn(40, 7) * 3, torch.arange(40) % 8

    def deform(*given):
        return deform_conv2d(*given, 1, 1, 1, 2, 2)

    def modulated(*given):
        return modulated_deform_conv2d(*given, None, 1, 1, 1, 2, 2)

    def sigmoid(given):
        return sigmoid_focal_loss(given, labels.to(given.device), 2.0, 0.25, None, "none")

    def softmax(given):
        return softmax_focal_loss(given, (labels - 1).to(given.device), 2.0, 0.25, None, "sum")

    return {
        "align": regions_of(roi_align, 3, 0.9, 0, "avg", True),
        "align fixed": regions_of(roi_align, 3, 0.9, 2, "avg", False),
        "align max": regions_of(roi_align, 3, 0.9, 0, "max", True),
        "pool": regions_of(roi_pool, 3, 0.9),
        "deform": (deform, (input, offset, weight)),
        "modulated": (modulated, (input, offset, mask, weight)),
        "sigmoid": (sigmoid, (logits,)),
        "softmax": (softmax, (logits,)),
    }


def results(function, tensors, device, dtype):
    given = [tensor.to(device, dtype).requires_grad_() for tensor in tensors]
    out = function(*given)
    factor = torch.linspace(0.5, 1.5, out.numel()).view(out.shape).to(out)
    grads = torch.autograd.grad((out * factor).sum(), given)
    assert all(result.dtype == dtype for result in (out, *grads))
    return [result.detach().cpu() for result in (out, *grads)]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("name", list(cases()))
def test_as_on_the_cpu(name, dtype):
    function, tensors = cases()[name]
    on_gpu = results(function, tensors, "cuda", dtype)
    tolerance = {} if dtype.itemsize == 2 else dict(rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(on_gpu, results(function, tensors, "cpu", dtype), **tolerance)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
@pytest.mark.parametrize("offset", [0, 1])
def test_nms_as_on_the_cpu(offset, dtype):
    torch.manual_seed(1)
    corner = torch.rand(300, 2) * 100
    boxes = torch.cat([corner, corner + torch.rand(300, 2) * 40], 1).to(dtype)
    scores = torch.randperm(300).div(300).float()
    expected = nms(boxes, scores, 0.5, offset=offset)[1]
    assert nms(boxes.cuda(), scores.cuda(), 0.5, offset=offset)[1].tolist() == expected.tolist()
    assert soft_nms(boxes.cuda(), scores.cuda(), 0.5)[0].is_cuda


def test_equal_scores_in_the_order_of_the_sort_there():
    boxes = torch.tensor([[0.0, 0, 4, 4]]).repeat(100, 1).cuda()
    scores = torch.ones(100, device="cuda")
    first = scores.sort(0, descending=True).indices[0]
    assert nms(boxes, scores, 0.5)[1].tolist() == [first.item()]


def test_nothing_at_all():
    assert nms(torch.zeros(0, 4).cuda(), torch.zeros(0).cuda(), 0.5)[1].is_cuda
    input = torch.rand(2, 3, 5, 5, device="cuda", requires_grad=True)
    for pooled in (
        roi_align(input, torch.zeros(0, 5).cuda(), 2, 1.0, 0, "avg", True),
        roi_pool(input, torch.zeros(0, 5).cuda(), 2, 1.0),
    ):
        assert pooled.shape == (0, 3, 2, 2)
        pooled.sum().backward()
    boxes = torch.rand(9, 4, device="cuda").cumsum(1)
    kept = batched_nms(boxes, torch.rand(9).cuda(), torch.arange(9).cuda(), dict(iou_threshold=0.5))
    assert len(kept[1]) == 9


@pytest.mark.parametrize("name", ["align", "align max", "pool"])
@pytest.mark.parametrize("column, value", [(0, 7.0), (1, float("nan")), (3, float("inf"))])
def test_unsound_regions_harm_no_other(name, column, value):
    """An image that is not in the batch is NaN here, where looking would wait for the device."""
    settings = () if name == "pool" else (0, "max" if name == "align max" else "avg", True)
    operation = roi_pool if name == "pool" else roi_align
    rois = REGIONS.clone()
    rois[1, column] = value
    input = torch.rand(2, 5, 8, 11, device="cuda", requires_grad=True)
    pooled = operation(input, rois.cuda(), 3, 1.0, *settings)
    assert pooled[1].isnan().all()
    pooled[[0, 2, 3]].sum().backward()
    assert input.grad.isfinite().all()


def test_offsets_that_are_no_number():
    input, offset = torch.rand(1, 2, 5, 5, device="cuda"), torch.zeros(1, 18, 5, 5, device="cuda")
    offset[0, 3, 2, 2] = float("nan")
    offset[0, 4, 0, 0] = float("inf")
    out = deform_conv2d(input, offset, torch.rand(3, 2, 3, 3, device="cuda"), 1, 1)
    assert out.isnan().nonzero()[:, 2:].unique(dim=0).tolist() == [[2, 2]]


def test_sigmoid_loss_takes_little_beside_its_result():
    """At any time there is one tensor of the size of the logits, losses or gradient."""
    logits = torch.randn(800_000, 80, device="cuda", requires_grad=True)
    labels = torch.randint(81, (800_000,), device="cuda")
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    sigmoid_focal_loss(logits, labels, 2.0, 0.25, None, "sum").backward()
    assert torch.cuda.max_memory_allocated() - before < 1.25 * logits.numel() * 4
