"""Polarity-aware linear attention, the fast torch form.

Shape letters: B batch, H heads, N queries, M keys, D channels of a head, E = ceil(D / 2), F = 2 D.
One feature map [positive | negative] serves both streams: the opposite-signed stream needs the two
halves of the *small* key/value state swapped, not a second copy of the features. One product over
the keys fills the state of both streams, one product over the queries reads it. The core runs in
fp32 under fp16 and bf16 autocast, because a fifth power leaves the range of fp16.
Source: PolaFormer, arXiv 2501.15061; checked against ``polaformer.ops.reference``.
"""

from __future__ import annotations

import math
from contextlib import AbstractContextManager, nullcontext
from typing import Any, NamedTuple

import torch
from torch import Tensor


class Regions(NamedTuple):
    """Which tokens of a window may meet: those with the same id.

    ``ids`` [G, N] holds 0 ... count - 1, and -1 for padding, which meets nothing else. Batches are
    ordered image by image, so row b of a batch belongs to window b modulo G.
    """

    ids: Tensor
    count: int  # type: ignore[assignment]


class _PolarPower(torch.autograd.Function):
    """[relu(t)^p | relu(-t)^p] with one power per element and a finite gradient everywhere.

    At t = 0 both halves and both gradients are exactly zero, also for p = 1. Exponents stay in the
    normal range of the type, since denormal numbers slow a CPU by an order of magnitude.
    """

    generate_vmap_rule = True

    @staticmethod
    def forward(t: Tensor, power: Tensor) -> Tensor:
        lowest = math.log2(torch.finfo(t.dtype).tiny)
        magnitude = (t.abs().log2_() * power).clamp_(min=lowest).exp2_()
        signed = magnitude.mul_(t.sign())
        positive = signed.clamp(min=0)
        return torch.cat((positive, positive - signed), dim=-1)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor], output: Tensor) -> None:
        ctx.save_for_backward(*inputs, output)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor | None]:
        t, power, features = ctx.saved_tensors
        positive, negative = features.chunk(2, dim=-1)
        grad_positive, grad_negative = grad.chunk(2, dim=-1)
        size = t.abs().clamp_(min=torch.finfo(t.dtype).tiny)
        from_positive, from_negative = grad_positive * positive, grad_negative * negative
        grad_t = (from_positive - from_negative) * power / size if ctx.needs_input_grad[0] else None
        grad_power = None
        if ctx.needs_input_grad[1]:
            grad_power = ((from_positive + from_negative) * size.log()).sum_to_size(power.shape)
        return grad_t, grad_power


def polar_features(t: Tensor, power: Tensor) -> Tensor:
    """Feature map [B, H, N, F] of t [B, H, N, D]: positive part, then negative part, to a power.

    ``power`` broadcasts against t (learned per head and channel: [1, H, 1, D]) and is at least 1.
    """
    return _PolarPower.apply(t, power)


def _swap_halves(t: Tensor, dim: int) -> Tensor:
    first, second = t.chunk(2, dim=dim)
    return torch.cat((second, first), dim=dim)


def _read_streams(queries: Tensor, keys: Tensor, v: Tensor, n: Tensor | int, eps: float) -> Tensor:
    """Both streams [..., N, D] from features [..., N, F], [..., M, F] and values [..., M, D]."""
    channels = v.shape[-1]
    half = (channels + 1) // 2
    state = keys.transpose(-2, -1) @ v / n
    mean = keys.sum(dim=-2).unsqueeze(-1) / n
    table = torch.cat(
        (state[..., :half], _swap_halves(state[..., half:], -2), mean, _swap_halves(mean, -2)),
        dim=-1,
    )
    out = queries @ table
    same, opposite, denominators = out.split((half, channels - half, 2), dim=-1)
    denominators = denominators + eps
    return torch.cat((same / denominators[..., :1], opposite / denominators[..., 1:]), dim=-1)


def _read_streams_by_region(
    queries: Tensor, keys: Tensor, v: Tensor, regions: Regions, eps: float
) -> Tensor:
    groups = regions.ids.shape[0]
    queries, keys, v = (t.unflatten(0, (-1, groups)) for t in (queries, keys, v))
    out = torch.zeros_like(v)
    for region in range(regions.count):
        inside = (regions.ids == region)[:, None, :, None].to(v.dtype)
        n = inside.sum(dim=-2, keepdim=True).clamp(min=1)
        out = out + inside * _read_streams(queries, keys * inside, v, n, eps)
    return out.flatten(0, 1)


def _without_autocast(device_type: str) -> AbstractContextManager:
    if torch.amp.is_autocast_available(device_type):
        return torch.autocast(device_type=device_type, enabled=False)
    return nullcontext()  # a device without autocast, such as 'meta'


def polar_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    power: Tensor,
    *,
    eps: float = 1e-6,
    regions: Regions | None = None,
) -> Tensor:
    """Polarity-aware linear attention [B, H, N, D].

    q [B, H, N, D], k and v [B, H, M, D] (v may have another width than q and k), power [1, H, 1, D]
    with values of at least 1. Cost grows with N + M. ``eps`` is added to the denominators, which
    are means over the keys. With ``regions`` (then N = M) a token meets only tokens of its own
    region, and padding comes out as zero. Computed in fp32 at least; returned in v's type.
    """
    with _without_autocast(q.device.type):
        dtype = torch.promote_types(v.dtype, torch.float32)
        power = power.to(dtype)
        queries = polar_features(q.to(dtype), power)
        keys = polar_features(k.to(dtype), power)
        if regions is None:
            out = _read_streams(queries, keys, v.to(dtype), k.shape[-2], eps)
        else:
            out = _read_streams_by_region(queries, keys, v.to(dtype), regions, eps)
    return out.to(v.dtype)
