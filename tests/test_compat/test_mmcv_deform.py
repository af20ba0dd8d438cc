"""Deformable convolutions through mmcv's own functions, against sampling written out in loops."""

from __future__ import annotations

import itertools
import math

import pytest
import torch
import torch.nn.functional as F

import polaformer  # noqa: F401  (supplies the extension)

pytest.importorskip("mmcv")
from mmcv.ops import DeformConv2d, ModulatedDeformConv2d, deform_conv2d, modulated_deform_conv2d

SETTINGS = {
    "plain": dict(),
    "odd": dict(stride=(2, 1), padding=(1, 2), dilation=(2, 1)),
    "groups": dict(groups=2, deform_groups=1, padding=1),
    "deform groups": dict(groups=1, deform_groups=2, padding=1),
    "both": dict(groups=2, deform_groups=4, stride=2, padding=1),
}


@pytest.fixture(params=list(SETTINGS))
def settings(request):
    defaults = dict(stride=1, padding=0, dilation=1, groups=1, deform_groups=1)
    return {**defaults, **SETTINGS[request.param]}


def pair(value):
    return value if isinstance(value, tuple) else (value, value)


def point(plane, y, x):
    """Bilinear value between the four pixels around a point; pixels outside count as 0."""
    height, width = plane.shape
    total, top, left = 0.0, math.floor(y), math.floor(x)
    for row, column in itertools.product((top, top + 1), (left, left + 1)):
        if 0 <= row < height and 0 <= column < width:
            total += (1 - abs(y - row)) * (1 - abs(x - column)) * plane[row, column].item()
    return total


def loop(input, offset, weight, mask, stride, padding, dilation, groups, deform_groups):
    """Dai et al., equation 2, one sample at a time."""
    stride, padding, dilation = pair(stride), pair(padding), pair(dilation)
    N, C = input.shape[:2]
    O, per_group, kH, kW = weight.shape
    out = torch.zeros(N, O, *offset.shape[2:], dtype=input.dtype)
    for n, o, i, j in itertools.product(*map(range, out.shape)):
        group = o // (O // groups)
        for c, a, b in itertools.product(range(per_group), range(kH), range(kW)):
            channel = group * per_group + c
            tap = (channel // (C // deform_groups)) * kH * kW + a * kW + b
            y = i * stride[0] - padding[0] + a * dilation[0] + offset[n, 2 * tap, i, j].item()
            x = j * stride[1] - padding[1] + b * dilation[1] + offset[n, 2 * tap + 1, i, j].item()
            value = weight[o, c, a, b] * point(input[n, channel], y, x)
            out[n, o, i, j] += value if mask is None else value * mask[n, tap, i, j]
    return out


def tensors(settings, images=2, kernel=(3, 2), spread=1.5, seed=0):
    """Input, offsets, weight and mask in double precision."""
    torch.manual_seed(seed)
    input = torch.randn(images, 4, 6, 5, dtype=torch.float64)
    weight = torch.randn(4, 4 // settings["groups"], *kernel, dtype=torch.float64)
    plain = {name: settings[name] for name in ("stride", "padding", "dilation", "groups")}
    size = F.conv2d(input, weight, **plain).shape[2:]
    taps = settings["deform_groups"] * kernel[0] * kernel[1]
    offset = torch.randn(images, 2 * taps, *size, dtype=torch.float64) * spread
    mask = torch.rand(images, taps, *size, dtype=torch.float64)
    return input, offset, weight, mask


def test_deform_conv_against_loops(settings):
    input, offset, weight, _ = tensors(settings)
    result = deform_conv2d(input, offset, weight, *settings.values())
    torch.testing.assert_close(result, loop(input, offset, weight, None, **settings))


def test_modulated_deform_conv_against_loops(settings):
    input, offset, weight, mask = tensors(settings, images=1)
    bias = torch.randn(4, dtype=torch.float64)
    expected = loop(input, offset, weight, mask, **settings)
    result = modulated_deform_conv2d(input, offset, mask, weight, None, *settings.values())
    torch.testing.assert_close(result, expected)
    result = modulated_deform_conv2d(input, offset, mask, weight, bias, *settings.values())
    torch.testing.assert_close(result, expected + bias[:, None, None])


def test_without_offsets_it_is_a_convolution(settings):
    input, offset, weight, mask = tensors(settings)
    plain = {name: settings[name] for name in ("stride", "padding", "dilation", "groups")}
    expected = F.conv2d(input, weight, **plain)
    zero = torch.zeros_like(offset)
    torch.testing.assert_close(deform_conv2d(input, zero, weight, *settings.values()), expected)
    ones = torch.ones_like(mask)
    result = modulated_deform_conv2d(input, zero, ones, weight, None, *settings.values())
    torch.testing.assert_close(result, expected)


def test_deform_conv_gradients(settings):
    inputs = [tensor.requires_grad_() for tensor in tensors(settings, images=1, spread=0.7)[:3]]
    assert torch.autograd.gradcheck(
        lambda *given: deform_conv2d(*given, *settings.values()), inputs, fast_mode=True
    )


@pytest.mark.parametrize("with_bias", [True, False])
def test_modulated_deform_conv_gradients(settings, with_bias):
    input, offset, weight, mask = tensors(settings, images=1, spread=0.7)
    bias = torch.randn(4, dtype=torch.float64, requires_grad=True) if with_bias else None
    inputs = [tensor.requires_grad_() for tensor in (input, offset, mask, weight)]
    assert torch.autograd.gradcheck(
        lambda *given: modulated_deform_conv2d(*given, *settings.values()),
        (*inputs, bias),
        fast_mode=True,
    )


@pytest.mark.parametrize("wanted", [0, 1, 2])
def test_one_gradient_alone(wanted):
    settings = dict(stride=1, padding=1, dilation=1, groups=1, deform_groups=1)
    inputs = [tensor.requires_grad_() for tensor in tensors(settings)[:3]]
    deform_conv2d(*inputs, *settings.values()).square().sum().backward()
    alone = [tensor.detach().clone() for tensor in inputs]
    alone[wanted].requires_grad_()
    deform_conv2d(*alone, *settings.values()).square().sum().backward()
    torch.testing.assert_close(alone[wanted].grad, inputs[wanted].grad)


@pytest.mark.parametrize("step", [1, 2, 4])
def test_im2col_step_changes_nothing(step):
    settings = dict(stride=1, padding=1, dilation=1, groups=2, deform_groups=2)
    input, offset, weight, _ = tensors(settings, images=4)
    input.requires_grad_()
    results = []
    for steps in (32, step):
        out = deform_conv2d(input, offset, weight, *settings.values(), False, steps)
        results.append((out, *torch.autograd.grad(out.square().sum(), input)))
    torch.testing.assert_close(results[0], results[1])


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_types_are_computed_in_single_precision(dtype):
    settings = dict(stride=1, padding=1, dilation=1, groups=1, deform_groups=1)
    half = [tensor.to(dtype).requires_grad_() for tensor in tensors(settings)]
    full = [tensor.detach().float().requires_grad_() for tensor in half]
    results = []
    for input, offset, weight, mask in (half, full):
        plain = deform_conv2d(input, offset, weight, *settings.values())
        modulated = modulated_deform_conv2d(input, offset, mask, weight, None, *settings.values())
        grads = torch.autograd.grad(modulated.sum(), (input, offset, weight, mask))
        results.append((plain, modulated, *grads))
    for computed, exact in zip(*results, strict=True):
        assert computed.dtype == dtype
        torch.testing.assert_close(computed, exact.to(dtype))


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf"), 1e30])
def test_offsets_out_of_bounds_touch_no_foreign_memory(value):
    settings = dict(stride=1, padding=1, dilation=1, groups=1, deform_groups=1)
    input, offset, weight, mask = tensors(settings, images=1)
    clean = deform_conv2d(input, offset, weight, *settings.values())
    offset[0, 2, 1, 1] = value
    given = [tensor.requires_grad_() for tensor in (input, offset, mask, weight)]
    result = modulated_deform_conv2d(*given, None, *settings.values())
    result[0, :, 0].sum().backward()
    plain = deform_conv2d(input, offset, weight, *settings.values())
    changed = (plain != clean).any(1)[0]
    assert changed.sum() <= 1
    assert result[0, :, 1, 1].isnan().all() == (value != value)
    assert plain[0, :, 1, 1].isnan().all() == (value != value)
    assert all(tensor.grad.isfinite().all() for tensor in given)


def test_modules_of_mmcv():
    torch.manual_seed(0)
    input = torch.randn(2, 4, 7, 7)
    plain = DeformConv2d(4, 6, 3, padding=1)
    assert plain(input, torch.zeros(2, 18, 7, 7)).shape == (2, 6, 7, 7)
    modulated = ModulatedDeformConv2d(4, 6, 3, padding=1)
    out = modulated(input, torch.zeros(2, 18, 7, 7), torch.ones(2, 9, 7, 7))
    torch.testing.assert_close(
        out, F.conv2d(input, modulated.weight, modulated.bias, padding=1), rtol=1e-4, atol=1e-5
    )
