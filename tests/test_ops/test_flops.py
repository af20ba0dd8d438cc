from __future__ import annotations

import pytest
import torch
from torch import nn

from polaformer.attention import build_attention
from polaformer.ops.flops import count_macs


class OnGrid(nn.Module):
    def __init__(self, attn, hw):
        super().__init__()
        self.attn, self.hw = attn, hw

    def forward(self, x):
        return self.attn(x, self.hw)


@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_closed_forms(device):
    """Per token: softmax 4 C^2 + 2 N C; pola 5 C^2 + 4 C d + C k^2 and its denominators."""
    n, c, heads = 48, 32, 4
    d = c // heads
    x = torch.zeros(1, n, c, device=device)
    with torch.device(device):
        softmax = build_attention("softmax", dim=c, num_heads=heads, grid_size=(6, 8))
        pola = build_attention("pola", dim=c, num_heads=heads, grid_size=(6, 8))
    assert count_macs(OnGrid(softmax, (6, 8)), x) == n * (4 * c * c + 2 * n * c)
    # The read product carries the two denominators as extra columns: 2 * 2 d a token and head.
    expected = n * (5 * c * c + 4 * c * d + heads * 2 * 2 * d + 25 * c)
    assert count_macs(OnGrid(pola, (6, 8)), x) == expected
