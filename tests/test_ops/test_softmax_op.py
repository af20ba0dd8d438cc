from __future__ import annotations

import torch

from polaformer.ops import Regions, softmax_attention
from polaformer.ops.reference import softmax_attention as reference


def test_agrees_with_the_full_map_with_bias_and_other_lengths():
    torch.manual_seed(0)
    q, k, v = (torch.randn(2, 3, n, 8, dtype=torch.float64) for n in (10, 7, 7))
    bias = torch.randn(3, 10, 7, dtype=torch.float64)
    out = softmax_attention(q, k, v, bias=bias)
    assert (out - reference(q, k, v, bias=bias)).abs().max() < 1e-12


def test_regions_equal_separate_attentions():
    torch.manual_seed(0)
    q, k, v = (torch.randn(4, 3, 6, 8, dtype=torch.float64) for _ in range(3))
    ids = torch.tensor([[0, 0, 1, 1, -1, -1], [0, 0, 0, 0, 0, 1]])
    out = softmax_attention(q, k, v, regions=Regions(ids, 2))
    for row in range(4):
        for region in (0, 1):
            at = (ids[row % 2] == region).nonzero()[:, 0]
            part = [t[row : row + 1, :, at] for t in (q, k, v)]
            assert (out[row : row + 1, :, at] - reference(*part)).abs().max() < 1e-12
    assert torch.isfinite(out).all()
