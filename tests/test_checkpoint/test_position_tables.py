"""Tables over positions, resized by height and width."""

from __future__ import annotations

import pytest
import torch
from safetensors.torch import load_file
from torch import nn

from polaformer.checkpoint import CheckpointError, load_weights, table_grids
from polaformer.checkpoint.tables import fit_table, resize_bias, resize_tokens

KEY = "a.positional_encoding"


class Table(nn.Module):
    def __init__(self, grid: tuple[int, int], channels: int = 2) -> None:
        super().__init__()
        self.grid_size = grid
        self.positional_encoding = nn.Parameter(torch.zeros(1, grid[0] * grid[1], channels))


class Bias(nn.Module):
    def __init__(self, window: tuple[int, int], heads: int = 2) -> None:
        super().__init__()
        self.window_size = window
        length = (2 * window[0] - 1) * (2 * window[1] - 1)
        self.relative_position_bias_table = nn.Parameter(torch.zeros(length, heads))


def plane(height: int, width: int) -> torch.Tensor:
    """Channel 0 holds the row's centre and channel 1 the column's, both from 0 to 1; (1, N, 2)."""
    rows = (torch.arange(height) + 0.5) / height
    columns = (torch.arange(width) + 0.5) / width
    grid = torch.stack(torch.meshgrid(rows, columns, indexing="ij"), -1)
    return grid.reshape(1, height * width, 2)


def test_resizing_agrees_with_the_reference_run(golden_dir):
    tables = load_file(golden_dir / "resize_tables.safetensors")
    tokens = resize_tokens(tables["input.positional_encoding"], (4, 4), (6, 6))
    # The stored sides 7 and 11 of the bias table belong to windows of 4 and 6.
    bias = resize_bias(tables["input.relative_position_bias_table"], (4, 4), (6, 6))
    torch.testing.assert_close(tokens, tables["output.positional_encoding"], atol=1e-6, rtol=0)
    torch.testing.assert_close(
        bias, tables["output.relative_position_bias_table"], atol=1e-6, rtol=0
    )


def test_rows_and_columns_keep_their_meaning():
    """Away from the border a plane stays one to .006: torch's cubic (a = -.75) errs by that."""
    resized = resize_tokens(plane(12, 8), (12, 8), (6, 16)).reshape(6, 16, 2)
    exact = plane(6, 16).reshape(6, 16, 2)
    inner = (slice(1, -1), slice(4, -4))
    torch.testing.assert_close(resized[inner], exact[inner], atol=0.006, rtol=0)


def test_half_precision_tables_are_resized_in_single(golden_dir):
    table = load_file(golden_dir / "resize_tables.safetensors")["input.positional_encoding"]
    resized = resize_tokens(table.half(), (4, 4), (6, 6))
    assert resized.dtype == torch.float16
    single = resize_tokens(table.half().float(), (4, 4), (6, 6))
    assert torch.equal(resized, single.half())


def test_the_model_tells_its_grid():
    module = Table((3, 8))
    report = load_weights(module, {"positional_encoding": plane(6, 6)})
    expected = resize_tokens(plane(6, 6), (6, 6), (3, 8))
    assert torch.equal(module.positional_encoding.detach(), expected)
    assert report.resized == ["positional_encoding"]
    assert "1 resized" in str(report)


def test_a_parent_may_tell_the_grid():
    parent = nn.Module()
    parent.grid_size = (2, 8)
    parent.child = nn.Module()
    parent.child.pos_embed = nn.Parameter(torch.zeros(1, 16, 2))
    load_weights(parent, {"child.pos_embed": plane(3, 3)})
    assert torch.equal(parent.child.pos_embed.detach(), resize_tokens(plane(3, 3), (3, 3), (2, 8)))


def test_the_same_number_of_tokens_on_another_grid():
    """36 positions of the file: 6 x 6 is not 4 x 9; without a word it stops."""
    state = {"positional_encoding": plane(6, 6)}
    with pytest.raises(CheckpointError, match=r"may be \(6, 6\) or \(4, 9\).*source_grids"):
        load_weights(Table((4, 9)), state)
    square, same = Table((4, 9)), Table((4, 9))
    assert load_weights(square, state, source_grids={"*positional_encoding": (6, 6)}).resized
    expected = resize_tokens(plane(6, 6), (6, 6), (4, 9))
    assert torch.equal(square.positional_encoding.detach(), expected)
    assert not load_weights(same, state, source_grids={"*": (4, 9)}).resized
    assert torch.equal(same.positional_encoding.detach(), plane(6, 6))


def test_a_checkpoint_may_state_its_grids():
    source = Table((4, 9))
    assert table_grids(source) == {"positional_encoding": [4, 9]}
    checkpoint = {
        "state_dict": {"positional_encoding": plane(4, 9)},
        "meta": {"table_grids": table_grids(source)},
    }
    target = Table((6, 6))
    load_weights(target, checkpoint)
    expected = resize_tokens(plane(4, 9), (4, 9), (6, 6))
    assert torch.equal(target.positional_encoding.detach(), expected)
    assert not load_weights(Table((4, 9)), checkpoint).resized


@pytest.mark.parametrize(
    "owner, prefix", [("module.backbone.", None), ("teacher.backbone.", "teacher.backbone")]
)
def test_stated_grids_fit_whatever_stands_in_front(owner, prefix):
    """A whole model's file into its part: the grids are found under the owner's name."""
    checkpoint = {
        "state_dict": {f"{owner}positional_encoding": plane(4, 9)},
        "meta": {"table_grids": {f"{owner}positional_encoding": [4, 9]}},
    }
    target = Table((6, 6))
    load_weights(target, checkpoint, prefix=prefix)
    expected = resize_tokens(plane(4, 9), (4, 9), (6, 6))
    assert torch.equal(target.positional_encoding.detach(), expected)


def test_a_table_that_cannot_be_resized_may_be_given_up():
    module = nn.Sequential(Table((6, 6)), nn.Linear(2, 2))
    state = {"0.positional_encoding": plane(3, 8), "1.weight": torch.ones(2, 2)}
    state["1.bias"] = torch.ones(2)
    report = load_weights(module, state, allow_shape_mismatch=["*positional_encoding"])
    assert report.mismatched == ["0.positional_encoding"]
    assert module[0].positional_encoding.abs().sum() == 0


def test_an_unknown_source_grid_stops():
    state = {"positional_encoding": plane(3, 8)}
    with pytest.raises(CheckpointError, match=r"24 positions is not square; state .*source_grids"):
        load_weights(Table((6, 6)), state)
    with pytest.raises(CheckpointError, match=r"stated grid \(5, 5\) does not give the 24"):
        load_weights(Table((6, 6)), state, source_grids={"*": (5, 5)})
    assert not load_weights(Table((3, 8)), state).resized


def test_an_unknown_target_grid_stops():
    value, goal = torch.zeros(1, 16, 2), (1, 24, 2)
    with pytest.raises(CheckpointError, match="does not say the"):
        fit_table(value, KEY, goal, None, None)


@pytest.mark.parametrize("window", [(6, 6), (3, 5)])
def test_bias_tables_by_window(window):
    torch.manual_seed(0)
    table = torch.randn(49, 2)
    module = Bias(window)
    load_weights(module, {"relative_position_bias_table": table})
    expected = resize_bias(table, (4, 4), window)
    assert torch.equal(module.relative_position_bias_table.detach(), expected)


def test_other_widths_are_not_resized():
    with pytest.raises(CheckpointError, match=r"\(1, 9, 2\) in the file and \(1, 16, 3\)"):
        load_weights(Table((4, 4), channels=3), {"positional_encoding": plane(3, 3)})
