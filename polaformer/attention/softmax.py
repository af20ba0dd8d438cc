"""Ordinary softmax attention, the yardstick every linear one is held against."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from polaformer.attention.base import Attention, Size
from polaformer.attention.position import relative_position_bias
from polaformer.ops import Regions, softmax_attention
from polaformer.registry import ATTENTIONS


@ATTENTIONS.register_module("softmax")
class SoftmaxAttention(Attention):
    """Scaled-dot-product attention (arXiv 1706.03762), with Swin's relative bias if asked.

    Args:
        dim, num_heads, grid_size, qkv_bias, proj_drop: See :class:`Attention`.
        relative_position_bias: Add a learned bias by the offset between query and key
            (arXiv 2103.14030). Needs keys on the grid of the queries.
    """

    def __init__(
        self,
        dim: int,
        num_heads: int,
        grid_size: Size,
        qkv_bias: bool = True,
        proj_drop: float = 0.0,
        relative_position_bias: bool = False,
    ) -> None:
        super().__init__(dim, num_heads, grid_size, qkv_bias, proj_drop)
        self.qkv = nn.Linear(dim, 3 * dim, bias=qkv_bias)
        self.relative_position_bias = relative_position_bias
        if relative_position_bias:
            self.window_size = self.grid_size
            offsets = (2 * self.window_size[0] - 1) * (2 * self.window_size[1] - 1)
            self.relative_position_bias_table = nn.Parameter(torch.empty(offsets, num_heads))
            nn.init.trunc_normal_(self.relative_position_bias_table, std=0.02)

    def forward(
        self,
        x: Tensor,
        hw: Size,
        context: Tensor | None = None,
        context_hw: Size | None = None,
        regions: Regions | None = None,
    ) -> Tensor:
        if context is None:
            q, k, v = self.qkv(x).chunk(3, dim=-1)
        else:
            dims = (self.dim, 2 * self.dim)
            weights = self.qkv.weight.split(dims)
            biases = (None, None) if self.qkv.bias is None else self.qkv.bias.split(dims)
            q = F.linear(x, weights[0], biases[0])
            k, v = F.linear(context, weights[1], biases[1]).chunk(2, dim=-1)
        bias = None
        if self.relative_position_bias:
            bias = relative_position_bias(self.relative_position_bias_table, self.window_size, hw)
        q, k, v = self.split_heads(q), self.split_heads(k), self.split_heads(v)
        out = softmax_attention(q, k, v, bias=bias, regions=regions)
        return self.proj_drop(self.proj(self.merge_heads(out)))
