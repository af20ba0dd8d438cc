"""Windows: who meets whom, on grids that divide and grids that do not."""

from __future__ import annotations

import pytest
import torch

from polaformer.attention import ReducedAttention, WindowAttention, build_attention
from polaformer.attention.window import window_regions


def windowed(name, window, shifted, dim=8):
    torch.manual_seed(0)
    extra = {"relative_position_bias": True} if name == "softmax" else {}
    attn = build_attention(name, dim=dim, num_heads=2, grid_size=window, **extra)
    for parameter in attn.parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    return WindowAttention(attn, window, shifted).double()


def neighbours(hw, window, shifted):
    """Pairs that may meet, from the definition: the same window of a grid shifted by half."""
    labels = []
    for size, side in zip(hw, window, strict=True):
        side = min(side, size)
        shift = side // 2 if shifted and size > side else 0
        labels.append([(i - shift) // side for i in range(size)])
    cells = torch.tensor([[r * 1000 + c for c in labels[1]] for r in labels[0]]).flatten()
    return cells[:, None] == cells[None, :]


SIZES = [(8, 8), (6, 9), (5, 7), (3, 10)]
CASES = [(hw, shifted) for hw in SIZES for shifted in (False, True)]


@pytest.mark.parametrize("hw, shifted", CASES)
def test_linear_windows_reach_exactly_their_neighbours(hw, shifted):
    module = windowed("pola", (4, 4), shifted)
    n = hw[0] * hw[1]
    x = torch.randn(1, n, 8, dtype=torch.float64)
    jacobian = torch.autograd.functional.jacobian(lambda t: module(t, hw), x)
    reach = jacobian.abs().sum(dim=(0, 2, 3, 5)) > 0
    assert torch.equal(reach, neighbours(hw, (4, 4), shifted))


@pytest.mark.parametrize("hw, shifted", CASES)
def test_softmax_windows_reach_exactly_their_neighbours(hw, shifted):
    module = windowed("softmax", (4, 4), shifted)
    n = hw[0] * hw[1]
    x = torch.randn(1, n, 8, dtype=torch.float64)
    jacobian = torch.autograd.functional.jacobian(lambda t: module(t, hw), x)
    reach = jacobian.abs().sum(dim=(0, 2, 3, 5)) > 0
    assert torch.equal(reach, neighbours(hw, (4, 4), shifted))


@pytest.mark.parametrize("name", ["pola", "softmax"])
def test_padding_carries_no_weight(name):
    """A 5 x 4 grid under 4 x 4 windows: the last row alone equals a grid of one row."""
    module = windowed(name, (4, 4), shifted=False)
    if name == "pola":
        torch.nn.init.zeros_(module.attn.positional_encoding)
    x = torch.randn(2, 20, 8, dtype=torch.float64)
    out = module(x, (5, 4))
    last = module.attn(x[:, 16:], (1, 4))
    assert (out[:, 16:] - last).abs().max() < 1e-12


@pytest.mark.parametrize("name", ["pola", "softmax"])
def test_images_of_a_batch_stay_apart(name):
    module = windowed(name, (4, 4), shifted=True)
    x = torch.randn(3, 54, 8, dtype=torch.float64)
    single = torch.cat([module(x[i : i + 1], (6, 9)) for i in range(3)])
    assert (module(x, (6, 9)) - single).abs().max() < 1e-12


def test_grid_within_the_window_needs_no_window():
    module = windowed("pola", (7, 7), shifted=True)
    x = torch.randn(1, 15, 8, dtype=torch.float64)
    assert torch.equal(module(x, (3, 5)), module.attn(x, (3, 5)))


def test_region_ids_by_hand():
    """Rows 0-4 in windows of 4, shift 2: rolled rows are 2 3 4 pad | pad pad 0 1 (pad 3 rows)."""
    regions = window_regions((5, 1), (4, 1), (2, 0))
    assert regions.ids.tolist() == [[0, 0, 0, -1], [-1, -1, 2, 2]]
    assert regions.count == 4


@pytest.mark.parametrize("name", ["pola", "softmax"])
@pytest.mark.parametrize("hw", [(14, 14), (7, 7), (9, 5), (1, 3)])
def test_reduction_of_sizes_that_do_not_divide(name, hw):
    torch.manual_seed(0)
    attn = build_attention(name, dim=8, num_heads=2, grid_size=(4, 4))
    module = ReducedAttention(attn, 4)
    x = torch.randn(2, hw[0] * hw[1], 8, requires_grad=True)
    out = module(x, hw)
    assert out.shape == x.shape
    out[0].square().sum().backward()
    assert (x.grad[0].abs().sum(-1) > 0).all()
    assert x.grad[1].abs().max() == 0


def test_reduced_value_is_upsampled_in_two_dimensions():
    """Along one row of a map that varies by column only, the local term must vary (fault 7)."""
    attn = build_attention("pola", dim=2, num_heads=1, grid_size=(2, 2))
    v = torch.tensor([0.0, 1.0, 0.0, 1.0]).reshape(1, 4, 1).expand(1, 4, 2)
    with torch.no_grad():
        attn.dwc.weight.zero_()
        attn.dwc.weight[:, :, 2, 2] = 1
        attn.dwc.bias.zero_()
        row = attn._local(v, (2, 2), (8, 8), None)[0, :8, 0]
    assert torch.allclose(row, torch.tensor([0, 0, 0.125, 0.375, 0.625, 0.875, 1, 1]))
