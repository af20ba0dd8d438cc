from __future__ import annotations

import torch
from safetensors.torch import load_file

from polaformer.attention.position import (
    GridTable,
    relative_position_bias,
    relative_position_index,
    resize_grid_table,
)


def test_resize_matches_the_published_one(golden_dir):
    tables = load_file(golden_dir / "resize_tables.safetensors")
    grid = resize_grid_table(tables["input.positional_encoding"], (4, 4), (6, 6), "bicubic")
    assert (grid - tables["output.positional_encoding"]).abs().max() < 1e-6
    bias = tables["input.relative_position_bias_table"][None]
    bias = resize_grid_table(bias, (7, 7), (11, 11), "bicubic")[0]
    assert (bias - tables["output.relative_position_bias_table"]).abs().max() < 1e-6


def test_native_size_is_the_table_itself():
    table = torch.randn(1, 12, 3)
    assert GridTable((3, 4))(table, (3, 4)) is table


def test_resizes_by_height_and_width():
    ramp = torch.arange(4.0).repeat_interleave(4).reshape(1, 16, 1)  # the row number
    out = GridTable((4, 4), mode="bilinear")(ramp, (2, 8)).reshape(2, 8)
    assert torch.allclose(out, torch.tensor([[0.5], [2.5]]).expand(2, 8))


def test_kept_result_follows_every_kind_of_write():
    table = torch.nn.Parameter(torch.randn(1, 16, 2))
    resizer = GridTable((4, 4))

    def fresh():
        return resize_grid_table(table, (4, 4), (6, 5), "bicubic")

    with torch.no_grad():
        assert resizer(table, (6, 5)) is resizer(table, (6, 5))
        table.add_(1)
        assert torch.equal(resizer(table, (6, 5)), fresh())
        table.data.copy_(torch.randn(1, 16, 2))  # as weight averaging does, unseen by autograd
        assert torch.equal(resizer(table, (6, 5)), fresh())


def test_gradient_reaches_the_table_after_an_evaluation():
    table = torch.nn.Parameter(torch.randn(1, 16, 2))
    resizer = GridTable((4, 4))
    with torch.no_grad():
        resizer(table, (5, 5))
    resizer(table, (5, 5)).sum().backward()
    assert table.grad is not None


def test_keeps_a_bounded_number_of_sizes():
    table, resizer = torch.randn(1, 16, 2), GridTable((4, 4))
    for side in range(5, 40):
        resizer(table, (side, side))
    assert len(resizer._kept) == GridTable.kept_sizes


def test_relative_index_of_a_2x2_window_by_hand():
    """Offsets of a 2 x 2 window: rows and columns each -1, 0, 1 -> 3 x 3 table, centre 4."""
    expected = torch.tensor([[4, 3, 1, 0], [5, 4, 2, 1], [7, 6, 4, 3], [8, 7, 5, 4]])
    assert torch.equal(relative_position_index((2, 2), (2, 2)), expected)


def test_smaller_window_reads_the_same_offsets():
    table = torch.randn(13 * 13, 2)
    full = relative_position_bias(table, (7, 7), (7, 7)).reshape(2, 7, 7, 7, 7)
    part = relative_position_bias(table, (7, 7), (3, 5)).reshape(2, 3, 5, 3, 5)
    assert torch.equal(part, full[:, :3, :5, :3, :5])
