"""PolaFormer's polarity-aware linear attention (arXiv 2501.15061).

Query and key are split into positive and negative parts. Same-signed pairs meet in one stream over
the first half of the value's channels, opposite-signed pairs in the other; a learned power per
channel sharpens both, an input-dependent gate scales them, and a depth-wise convolution on the
value restores the rank that a linear map loses.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from polaformer.attention.base import Attention, Size
from polaformer.attention.position import GridTable
from polaformer.errors import UserError
from polaformer.ops import Regions, polar_attention
from polaformer.registry import ATTENTIONS


@ATTENTIONS.register_module("pola")
class PolaAttention(Attention):
    """Polarity-aware linear attention with gate and local convolution.

    Args:
        dim, num_heads, grid_size, qkv_bias, proj_drop: See :class:`Attention`.
        alpha: The exponent of a channel lies in (1, 1 + alpha); 1 + alpha / 2 at the start.
        kernel_size: Odd side of the depth-wise convolution; its kernel is shared by all heads.
        eps: Added to the denominators, which are means over the keys.
        value_upsample: How a reduced value grid meets the query grid in the convolution:
            'bilinear' in 2-D, or 'tokens', the published code's 1-D interpolation along the
            flattened tokens (kept for weights trained with it; no released model is).
    """

    linear = True

    def __init__(
        self,
        dim: int,
        num_heads: int,
        grid_size: Size,
        qkv_bias: bool = True,
        proj_drop: float = 0.0,
        alpha: float = 4.0,
        kernel_size: int = 5,
        eps: float = 1e-6,
        value_upsample: str = "bilinear",
    ) -> None:
        super().__init__(dim, num_heads, grid_size, qkv_bias, proj_drop)
        if not isinstance(kernel_size, int) or kernel_size < 1 or kernel_size % 2 == 0:
            raise UserError(f"attention pola: kernel_size={kernel_size!r}; allowed: odd numbers")
        if not isinstance(alpha, int | float) or alpha < 0:
            raise UserError(f"attention pola: alpha={alpha!r}; allowed: numbers from 0 up")
        if value_upsample not in ("bilinear", "tokens"):
            raise UserError(
                f"attention pola: value_upsample='{value_upsample}'; allowed: 'bilinear', 'tokens'"
            )
        self.alpha = alpha
        self.kernel_size = kernel_size
        self.eps = eps
        self.value_upsample = value_upsample
        head_dim = self.head_dim
        self.qgkv = nn.Linear(dim, 4 * dim, bias=qkv_bias)
        self.dwc = nn.Conv2d(head_dim, head_dim, kernel_size, padding="same", groups=head_dim)
        self.power = nn.Parameter(torch.zeros(1, num_heads, 1, head_dim))
        self.scale = nn.Parameter(torch.zeros(1, 1, dim))
        tokens = self.grid_size[0] * self.grid_size[1]
        self.positional_encoding = nn.Parameter(torch.zeros(1, tokens, dim))
        self._positions = GridTable(self.grid_size)

    def exponent(self) -> Tensor:
        """The exponents [1, heads, 1, head_dim], each in (1, 1 + alpha)."""
        return 1 + self.alpha * torch.sigmoid(
            self.power.to(torch.promote_types(self.power.dtype, torch.float32))
        )

    def forward(
        self,
        x: Tensor,
        hw: Size,
        context: Tensor | None = None,
        context_hw: Size | None = None,
        regions: Regions | None = None,
    ) -> Tensor:
        if context is None or context_hw is None:
            q, gate, k, v = self.qgkv(x).chunk(4, dim=-1)
            context_hw = hw
        else:
            (q, gate), (k, v) = self._project_apart(x, context)
        k = k + self._positions(self.positional_encoding, context_hw)
        sharpness = F.softplus(self.scale)
        q, k = self.split_heads(q / sharpness), self.split_heads(k / sharpness)
        out = polar_attention(
            q, k, self.split_heads(v), self.exponent(), eps=self.eps, regions=regions
        )
        out = self.merge_heads(out) + self._local(v, context_hw, hw, regions)
        return self.proj_drop(self.proj(out * gate))

    def _project_apart(self, x: Tensor, context: Tensor) -> tuple[tuple[Tensor, ...], ...]:
        """Query and gate from x, key and value from the context, out of the one projection."""
        weights = self.qgkv.weight.chunk(2)
        biases = (None, None) if self.qgkv.bias is None else self.qgkv.bias.chunk(2)
        pairs = zip((x, context), weights, biases, strict=True)
        return tuple(F.linear(t, w, b).chunk(2, dim=-1) for t, w, b in pairs)

    def _local(self, v: Tensor, source: Size, target: Size, regions: Regions | None) -> Tensor:
        """The depth-wise convolution of the value [B, n, C] on its grid, as tokens [B, N, C]."""
        if self.value_upsample == "tokens" and source != target:
            v = F.interpolate(v.transpose(1, 2), size=target[0] * target[1], mode="linear")
            v, source = v.transpose(1, 2), target
        if regions is None:
            return self._convolve(v, source, target)
        # Padding and neighbours that only a cyclic shift brought together stay apart.
        ids = regions.ids.repeat(v.shape[0] // regions.ids.shape[0], 1).unsqueeze(-1)
        out = torch.zeros_like(v)
        for region in range(regions.count):
            inside = (ids == region).to(v.dtype)
            out = out + inside * self._convolve(v * inside, source, target)
        return out

    def _convolve(self, v: Tensor, source: Size, target: Size) -> Tensor:
        images = v.transpose(1, 2).unflatten(2, source)
        if source != target:
            images = F.interpolate(images, size=target, mode="bilinear", align_corners=False)
        # Heads become channels of one image, so the kernel is repeated rather than the images cut.
        kernels = self.dwc.weight.expand(self.num_heads, *self.dwc.weight.shape)
        bias = None if self.dwc.bias is None else self.dwc.bias.repeat(self.num_heads)
        padding = self.kernel_size // 2
        images = F.conv2d(images, kernels.flatten(0, 1), bias, padding=padding, groups=self.dim)
        return images.flatten(2).transpose(1, 2)
