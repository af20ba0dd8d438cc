"""What is read of a work directory, whatever is missing from it."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from polaformer.errors import UserError
from polaformer.visualization.results import (
    iterations_per_epoch,
    load_results,
    read_log_problems,
    read_scalars,
    split_scalars,
    train_series,
    val_series,
)


def test_a_line_cut_by_a_kill_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "scalars.json"
    path.write_bytes(b'{"loss": 1.5, "iter": 1}\n\xff\xfe\n[1, 2]\n{"loss": 0.7, "it')
    assert read_scalars(path) == [{"loss": 1.5, "iter": 1}]


def test_a_resumed_run_keeps_the_later_record_of_a_step() -> None:
    records = [
        {"loss": 3.0, "iter": 1, "step": 1},
        {"loss": 9.0, "iter": 2, "step": 2},
        {"val/top1": 50.0, "step": 1},
        {"loss": 2.0, "iter": 2, "step": 2},
        {"val/top1": 55.0, "step": 1},
    ]
    train, val = split_scalars(records)
    assert [record["loss"] for record in train] == [3.0, 2.0]
    assert val == [{"top1": 55.0, "step": 1}]


def test_steps_become_epochs() -> None:
    train = [{"loss": 1.0, "step": step, "epoch": (step + 9) // 10} for step in (5, 10, 15, 20)]
    assert iterations_per_epoch(train) == 10
    curve = train_series(train, "loss")
    assert curve is not None
    assert curve.x == (0.5, 1.0, 1.5, 2.0)


@pytest.mark.parametrize("value", [math.nan, math.inf, None, "high", True, [1]])
def test_what_is_no_finite_number_becomes_nan(value: object) -> None:
    curve = train_series(
        [{"loss": value, "step": 1}, {"loss": 2, "step": 2}, {"lr": 1, "step": 3}], "loss"
    )
    assert curve is not None
    assert math.isnan(curve.y[0])
    assert curve.y[1:] == (2.0,)


def test_validation_may_count_iterations_or_epochs() -> None:
    records = [
        {"lr": 0.1, "loss": 2.0, "epoch": 1, "iter": 7, "step": 7},
        {"top1": 50.0, "loss": 1.0, "epoch": 1, "iter": 7, "step": 7},
        {"val/loss": 0.5, "step": 2},
    ]
    train, val = split_scalars(records)
    assert [record["loss"] for record in train] == [2.0]
    curve = val_series(val, "loss")
    assert curve is not None
    assert curve.x == (1.0, 2.0)
    assert curve.y == (1.0, 0.5)


def test_a_curve_that_was_not_logged_is_none() -> None:
    assert val_series([{"loss": 1.0, "step": 1}], "top1") is None
    assert iterations_per_epoch([]) == 1.0


def test_everything_missing_is_named(tmp_path: Path) -> None:
    results = load_results(tmp_path)
    assert results.main is results.score is None
    assert results.classes == results.confusion == results.scalars == []
    names = [text.split()[0] for text in results.missing]
    assert names == ["run_card.json", "metrics.json", "predictions.json", "scalars.json"]


def test_unreadable_files_are_named_with_the_reason(tmp_path: Path) -> None:
    (tmp_path / "metrics.json").write_text('{"metrics": {"top1"')
    (tmp_path / "scalars.json").write_text("")
    missing = " | ".join(load_results(tmp_path).missing)
    assert "metrics.json (results of a test): unreadable" in missing
    assert "scalars.json (training curves): holds no readable line" in missing


def test_the_layout_of_mmengine_is_found(tmp_path: Path) -> None:
    for stamp, loss in (("20260101_000000", 1.0), ("20260102_000000", 2.0)):
        folder = tmp_path / stamp / "vis_data"
        folder.mkdir(parents=True)
        (folder / "scalars.json").write_text(json.dumps({"loss": loss, "iter": 1}))
    assert load_results(tmp_path).scalars == [{"loss": 2.0, "iter": 1}]


@pytest.mark.parametrize(
    "confusion",
    [None, [], [[1, 2]], [[1, 2], [3]], [[1, "x"], [0, 1]], [[1, -1], [0, 1]], 7, {}, "ab"],
)
def test_a_confusion_matrix_that_does_not_fit_is_dropped(tmp_path: Path, confusion: object) -> None:
    text = json.dumps({"confusion": confusion, "classes": ["a", "b"]})
    (tmp_path / "metrics.json").write_text(text)
    assert load_results(tmp_path).confusion == []


def test_class_names_come_from_the_per_class_table_too(tmp_path: Path) -> None:
    metrics = {"per_class": {"cat": 50.0, "dog": None}, "confusion": [[1, 1], [0, 0]]}
    (tmp_path / "metrics.json").write_text(json.dumps(metrics))
    results = load_results(tmp_path)
    assert results.classes == ["cat", "dog"]
    assert results.confusion == [[1.0, 1.0], [0.0, 0.0]]


def test_no_folder_is_a_users_mistake(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="is not a folder"):
        load_results(tmp_path / "nowhere")


def test_warnings_of_the_log_are_counted(tmp_path: Path) -> None:
    (tmp_path / "20260101.log").write_text(
        "2026/01/01 00:00:00 - mmengine - INFO - WARNING is only a word here\n"
        "2026/01/01 00:00:01 - mmengine - WARNING - a.jpg skipped\n"
        "2026/01/01 00:00:02 - mmengine - WARNING - a.jpg skipped\n"
        "2026/01/01 00:00:03 - mmengine - ERROR - loss is nan\n"
    )
    assert read_log_problems(tmp_path) == ["warning: a.jpg skipped (2 times)", "error: loss is nan"]
