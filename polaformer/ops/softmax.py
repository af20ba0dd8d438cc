"""Softmax attention under the signature of the linear ops, over torch's fused kernels."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from polaformer.ops.polar import Regions


def region_mask(regions: Regions) -> Tensor:
    """Boolean mask [G, 1, N, N], true where two tokens of a window share a region."""
    return (regions.ids[:, :, None] == regions.ids[:, None, :])[:, None]


def softmax_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    scale: float | None = None,
    bias: Tensor | None = None,
    regions: Regions | None = None,
) -> Tensor:
    """Softmax attention [B, H, N, D].

    q [B, H, N, D], k and v [B, H, M, D]; ``scale`` defaults to D^-1/2; ``bias`` [H, N, M] is added
    to the scores; with ``regions`` a token meets only its own region (padding meets padding).
    """
    bias = None if bias is None else bias.to(q.dtype)
    if regions is None:
        mask = None if bias is None else bias.unsqueeze(0)
        return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, scale=scale)
    # Windows move into the head axis, so that one mask serves every image without a copy.
    heads, groups = q.shape[1], regions.ids.shape[0]
    allowed = region_mask(regions)
    mask = torch.zeros(allowed.shape, dtype=q.dtype, device=q.device)
    mask = mask.masked_fill(~allowed, float("-inf"))
    mask = mask.expand(-1, heads, -1, -1) if bias is None else mask + bias
    q, k, v = (t.unflatten(0, (-1, groups)).flatten(1, 2) for t in (q, k, v))
    out = F.scaled_dot_product_attention(q, k, v, attn_mask=mask.flatten(0, 1)[None], scale=scale)
    return out.unflatten(1, (groups, heads)).flatten(0, 1)
