"""The fast op against the naive float64 forms, in value and gradient."""

from __future__ import annotations

import pytest
import torch

from polaformer.ops import Regions, polar_attention, polar_features
from polaformer.ops.reference import polar_attention_kv, polar_attention_nn, polar_parts

SIZES = [(1, 1, 4), (63, 63, 16), (100, 25, 32), (49, 196, 7), (5, 3, 1)]


def inputs(n, m, d, dtype=torch.float64, seed=0):
    generator = torch.Generator().manual_seed(seed)
    q, k, v = (torch.randn(2, 3, t, d, generator=generator, dtype=dtype) for t in (n, m, m))
    power = 1 + 4 * torch.rand(1, 3, 1, d, generator=generator, dtype=dtype)
    return [t.requires_grad_() for t in (q, k, v, power)]


@pytest.mark.parametrize("n, m, d", SIZES)
def test_agrees_with_both_reference_forms(n, m, d):
    ours, theirs = inputs(n, m, d), inputs(n, m, d)
    cotangent = torch.randn(2, 3, n, d, dtype=torch.float64)
    out = polar_attention(*ours)
    expected = polar_attention_nn(*theirs)
    assert (out - expected).abs().max() < 1e-12
    assert (polar_attention_kv(*theirs) - expected).abs().max() < 1e-12
    out.backward(cotangent)
    expected.backward(cotangent)
    for a, b in zip(ours, theirs, strict=True):
        assert (a.grad - b.grad).abs().max() <= 1e-9 * max(1.0, float(b.grad.abs().max()))


def test_gradcheck():
    q, k, v, power = inputs(4, 3, 3)
    assert torch.autograd.gradcheck(lambda *t: polar_attention(*t), (q, k, v, power))


def test_streams_are_not_interchangeable():
    """Negating every key swaps same-signed and opposite-signed pairs, so the output must move."""
    q, k, v, power = (t.detach() for t in inputs(10, 10, 8))
    assert (polar_attention(q, k, v, power) - polar_attention(q, -k, v, power)).abs().max() > 0.1


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("power", [1.0, 1.5, 3.0, 5.0])
def test_zero_has_zero_value_and_zero_finite_gradient(power, dtype):
    t = torch.zeros(1, 1, 4, 2, dtype=dtype, requires_grad=True)
    p = torch.full((1, 1, 1, 2), power, dtype=dtype, requires_grad=True)
    features = polar_features(t, p)
    features.sum().backward()
    assert features.abs().max() == 0
    assert t.grad.abs().max() == 0
    assert p.grad.abs().max() == 0


def test_features_match_plain_powers_in_fp32():
    t = torch.linspace(-3, 3, 121).reshape(1, 1, -1, 1)
    power = torch.full((1, 1, 1, 1), 2.7)
    positive, negative = polar_parts(t.double(), power.double())
    expected = torch.cat((positive, negative), -1)
    assert ((polar_features(t, power) - expected).abs() <= 3e-6 * expected + 1e-12).all()


def test_tiny_activations_do_not_become_denormal():
    t = torch.tensor([1e-30, -1e-12, 1e-8]).reshape(1, 1, 3, 1)
    features = polar_features(t, torch.full((1, 1, 1, 1), 5.0))
    tiny = torch.finfo(torch.float32).tiny
    assert ((features == 0) | (features >= tiny)).all()


def test_regions_equal_separate_attentions():
    q, k, v, power = (t.detach() for t in inputs(6, 6, 4))
    ids = torch.tensor([[0, 0, 1, 1, -1, -1], [0, 0, 0, 0, 0, 1]])
    out = polar_attention(q, k, v, power, regions=Regions(ids, 2))
    for window in range(2):
        for region in (0, 1):
            at = (ids[window] == region).nonzero()[:, 0]
            part = (t[window : window + 1, :, at] for t in (q, k, v))
            expected = polar_attention_nn(*part, power)
            assert (out[window : window + 1, :, at] - expected).abs().max() < 1e-12
    assert out[0, :, 4:].abs().max() == 0


def test_core_stays_in_fp32_under_autocast():
    """(8 * 20)^5 leaves fp16's range by far; the weights of an average must not."""
    q, k, v, _ = (t.detach().float() for t in inputs(49, 49, 16))
    power = torch.full((1, 3, 1, 16), 4.9998)
    for dtype in (torch.float16, torch.bfloat16):
        with torch.autocast("cpu", dtype):
            out = polar_attention(q.to(dtype) * 20, k.to(dtype) * 8, v.to(dtype), power)
        assert out.dtype == dtype
        assert torch.isfinite(out).all()
        assert out.abs().max() <= v.abs().max() * 1.01


def test_non_contiguous_inputs():
    q, k, v, power = (t.detach() for t in inputs(12, 12, 6))
    strided = [t.transpose(1, 2).contiguous().transpose(1, 2) for t in (q, k, v)]
    assert not strided[0].is_contiguous()
    assert torch.allclose(polar_attention(*strided, power), polar_attention(q, k, v, power))


def test_function_transforms_see_the_gradient():
    q, k, v, power = (t.detach() for t in inputs(5, 5, 4))

    def loss(t):
        return polar_attention(t, k, v, power).square().sum()

    leaf = q.clone().requires_grad_()
    loss(leaf).backward()
    assert torch.allclose(torch.func.grad(loss)(q), leaf.grad)
