"""A segmentor on a GPU: the CPU's labels and losses, windows, autocast. Skipped where none is."""

from __future__ import annotations

import copy

import pytest
import torch
from segmentor_toy import aux, build, config, sample, truths

from polaformer.evaluation import SegmentationMetric

pytestmark = [
    pytest.mark.skipif(not torch.cuda.is_available(), reason="torch sees no CUDA device"),
    pytest.mark.usefixtures("mmseg"),
]

SIZE = (75, 110)


def samples(device: str) -> list:
    meta = {"ori_shape": SIZE, "img_shape": SIZE, "img_id": "a"}
    return [sample(truth, **meta).to(device) for truth in truths(1, *SIZE)]


@pytest.mark.parametrize(
    "test_cfg",
    [{"mode": "whole"}, {"mode": "slide", "crop_size": (64, 64), "stride": (40, 40)}],
)
def test_labels_loss_and_metric_are_those_of_the_cpu(test_cfg):
    images = torch.randn(1, 3, *SIZE, generator=torch.Generator().manual_seed(0))
    on_cpu = build(config(test_cfg=test_cfg), images)
    found = []
    for device in ("cpu", "cuda"):
        model = copy.deepcopy(on_cpu).to(device)
        (predicted,) = model(images.to(device), samples(device), mode="predict")
        metric = SegmentationMetric()
        metric.dataset_meta = {"classes": tuple("abcde")}
        metric.process({}, [predicted.to_dict()])
        found.append((predicted.pred_sem_seg.data.cpu(), metric.evaluate(1)))
    assert (found[0][0] != found[1][0]).float().mean() < 1e-3
    assert found[0][1] == pytest.approx(found[1][1], abs=0.2)


@pytest.mark.parametrize("dtype", [None, torch.bfloat16, torch.float16])
def test_losses_and_gradients_are_finite_and_those_of_the_cpu(dtype):
    images = torch.randn(2, 3, 64, 96, generator=torch.Generator().manual_seed(0))
    on_cpu = build(config(auxiliary_head=aux(dropout_ratio=0.0)), images).train()
    on_gpu = copy.deepcopy(on_cpu).cuda()
    truth = truths(2, 64, 96)
    expected = on_cpu(images, [sample(one) for one in truth], mode="loss")
    with torch.autocast("cuda", dtype=dtype, enabled=dtype is not None):
        moved = [sample(one).to("cuda") for one in truth]
        losses = on_gpu(images.cuda(), moved, mode="loss")
    names = [name for name in losses if "loss" in name]
    for name in names:
        tolerance = 1e-4 if dtype is None else 0.05
        assert losses[name].item() == pytest.approx(expected[name].item(), rel=tolerance)
    sum(losses[name] for name in names).backward()
    assert all(torch.isfinite(p.grad).all() for p in on_gpu.parameters())
