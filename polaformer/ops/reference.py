"""Naive forms of every attention op: the truth that the fast forms are tested against.

Shape letters: B batch, H heads, N queries, M keys, D channels of a head, E = ceil(D / 2).
Written for clarity and for float64; nothing here is fast. Source: PolaFormer, arXiv 2501.15061.
"""

from __future__ import annotations

import torch
from torch import Tensor


def softmax_attention_map(
    q: Tensor, k: Tensor, scale: float | None = None, bias: Tensor | None = None
) -> Tensor:
    """Row-normalised softmax attention map [B, H, N, M] of q [B, H, N, D] and k [B, H, M, D]."""
    scores = q @ k.transpose(-2, -1) * (q.shape[-1] ** -0.5 if scale is None else scale)
    if bias is not None:
        scores = scores + bias
    scores = scores - scores.amax(dim=-1, keepdim=True)
    weights = scores.exp()
    return weights / weights.sum(dim=-1, keepdim=True)


def softmax_attention(
    q: Tensor, k: Tensor, v: Tensor, scale: float | None = None, bias: Tensor | None = None
) -> Tensor:
    """Softmax attention [B, H, N, Dv] through its full N x M map."""
    return softmax_attention_map(q, k, scale, bias) @ v


def polar_parts(t: Tensor, power: Tensor) -> tuple[Tensor, Tensor]:
    """Positive and negative part of ``t`` [B, H, N, D], each raised to ``power`` [1, H, 1, D]."""
    return t.clamp(min=0) ** power, (-t).clamp(min=0) ** power


def polar_attention_maps(
    q: Tensor, k: Tensor, power: Tensor, eps: float = 1e-6, allowed: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """The same-signed and the opposite-signed attention map, each [B, H, N, M].

    ``allowed`` [..., N, M] marks the pairs that may meet; each query then averages over its own
    keys. The rows sum to one up to ``eps``, which is relative to the mean over keys.
    """
    q_pos, q_neg = polar_parts(q, power)
    k_pos, k_neg = polar_parts(k, power)
    same = q_pos @ k_pos.transpose(-2, -1) + q_neg @ k_neg.transpose(-2, -1)
    opposite = q_pos @ k_neg.transpose(-2, -1) + q_neg @ k_pos.transpose(-2, -1)
    if allowed is None:
        n: Tensor | int = k.shape[-2]
    else:
        same, opposite = same * allowed, opposite * allowed
        n = allowed.sum(dim=-1, keepdim=True).clamp(min=1)
    maps = []
    for scores in (same / n, opposite / n):
        maps.append(scores / (scores.sum(dim=-1, keepdim=True) + eps))
    return maps[0], maps[1]


def polar_attention_nn(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    power: Tensor,
    eps: float = 1e-6,
    allowed: Tensor | None = None,
) -> Tensor:
    """Polarity-aware linear attention [B, H, N, D] through its two N x M maps (quadratic form)."""
    same, opposite = polar_attention_maps(q, k, power, eps, allowed)
    half = (v.shape[-1] + 1) // 2
    v_same, v_opposite = v[..., :half], v[..., half:]
    return torch.cat((same @ v_same, opposite @ v_opposite), dim=-1)


def polar_attention_kv(q: Tensor, k: Tensor, v: Tensor, power: Tensor, eps: float = 1e-6) -> Tensor:
    """The same result, keys multiplied with values first: cost linear in N and M."""
    q_pos, q_neg = polar_parts(q, power)
    keys = torch.cat(polar_parts(k, power), dim=-1)
    n = k.shape[-2]
    streams = []
    half = (v.shape[-1] + 1) // 2
    queries = (torch.cat((q_pos, q_neg), dim=-1), torch.cat((q_neg, q_pos), dim=-1))
    for query, value in zip(queries, (v[..., :half], v[..., half:]), strict=True):
        numerator = query @ (keys.transpose(-2, -1) @ value / n)
        denominator = query @ keys.mean(dim=-2, keepdim=True).transpose(-2, -1) + eps
        streams.append(numerator / denominator)
    return torch.cat(streams, dim=-1)
