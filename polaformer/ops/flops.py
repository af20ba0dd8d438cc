"""Multiply-adds of a model, with fused softmax attention counted where torch counts nothing."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode, sdpa_flop_count


def _fused_on_cpu(query: Any, key: Any, value: Any, *args: Any, **kwargs: Any) -> int:
    """FLOPs of fused softmax attention: two products, 2 * B * H * N * M * (D + Dv)."""
    return sdpa_flop_count(query, key, value)


# Goes when FlopCounterMode counts the CPU kernel itself (torch 2.14.1 does not).
_EXTRA = {torch.ops.aten._scaled_dot_product_flash_attention_for_cpu: _fused_on_cpu}


def count_macs(model: nn.Module, inputs: torch.Tensor) -> int:
    """Multiply-adds of ``model(inputs)`` in evaluation mode: products and convolutions only.

    Element-wise work is not counted, as in the published tables. Works on any device, 'meta' too.
    """
    training = model.training
    model.eval()
    counter = FlopCounterMode(display=False, custom_mapping=_EXTRA)
    try:
        with torch.no_grad(), counter:
            model(inputs)
    finally:
        model.train(training)
    return counter.get_total_flops() // 2
