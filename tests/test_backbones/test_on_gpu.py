"""The same numbers on a GPU: outputs, gradients, autocast and a step. Skipped where none is."""

from __future__ import annotations

import copy

import pytest
import torch

from polaformer.backbones import build_backbone

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="torch sees no CUDA device")

KINDS = ["PolaSwin", "PolaPVT"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("extra", [{}, {"attention": "softmax"}, {"attention": "pola*2+softmax"}])
def test_agrees_with_the_cpu(kind, extra):
    torch.manual_seed(0)
    on_cpu = build_backbone(kind, arch="nano", **extra).double()
    on_gpu = copy.deepcopy(on_cpu).cuda()
    images = torch.randn(2, 3, 75, 111, dtype=torch.float64)
    outputs = []
    for model, device in ((on_cpu, "cpu"), (on_gpu, "cuda")):
        out = model(images.to(device))[0]
        out.square().mean().backward()
        outputs.append(out.detach().cpu())
    assert (outputs[0] - outputs[1]).abs().max() < 1e-9
    for a, b in zip(on_cpu.parameters(), on_gpu.parameters(), strict=True):
        assert torch.allclose(a.grad, b.grad.cpu(), rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_autocast_step_stays_finite(kind, dtype):
    torch.manual_seed(0)
    model = build_backbone(kind, arch="nano").cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for _ in range(2):
        with torch.autocast("cuda", dtype):
            loss = model(torch.randn(4, 3, 64, 64, device="cuda") * 4)[0].float().square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert torch.isfinite(loss)
    assert all(torch.isfinite(p).all() for p in model.parameters())


@pytest.mark.parametrize("kind", KINDS)
def test_compiled_equals_eager(kind):
    torch.manual_seed(0)
    model = build_backbone(kind, arch="nano").cuda().eval()
    compiled = torch.compile(model, fullgraph=True, dynamic=False)
    images = torch.randn(2, 3, 64, 96, device="cuda")
    with torch.no_grad():
        assert torch.allclose(compiled(images)[0], model(images)[0], atol=1e-4)
