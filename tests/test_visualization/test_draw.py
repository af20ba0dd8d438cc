"""Pictures of a classifier: predictions, curves, confusion matrix."""

from __future__ import annotations

import math
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from conftest_visualization import scalars
from matplotlib.figure import Figure
from PIL import Image

from polaformer.errors import UserError
from polaformer.visualization import (
    Prediction,
    curves,
    draw_confusion,
    draw_curves,
    draw_predictions,
)
from polaformer.visualization.confusion import top_confusions
from polaformer.visualization.draw import _caption
from polaformer.visualization.figure import RIGHT, WRONG, short_name, write_whole


def picture(width: int = 16, height: int = 12) -> Image.Image:
    return Image.fromarray(np.full((height, width, 3), 255, np.uint8))


def pixels_of(path: Path, colour: str) -> int:
    wanted = np.array([int(colour[i : i + 2], 16) for i in (1, 3, 5)])
    image = np.asarray(Image.open(path).convert("RGB")).astype(int)
    return int((np.abs(image - wanted).sum(axis=-1) < 12).sum())


def test_wrong_predictions_carry_colour_and_sign(tmp_path: Path) -> None:
    right = Prediction(picture(), "cat", "cat", 0.9)
    wrong = Prediction(picture(), "cat", "dog", 0.625)
    assert _caption(right) == "✓ cat (90 %)"
    assert _caption(wrong) == "✗ said cat (62 %)\ntrue dog"
    assert _caption(Prediction(picture(), "cat")) == "cat"
    only_right = draw_predictions([right] * 3, tmp_path / "right.png")
    with_wrong = draw_predictions([right, wrong], tmp_path / "wrong.png")
    assert pixels_of(only_right, WRONG) == 0
    assert pixels_of(only_right, RIGHT) > 500
    assert pixels_of(with_wrong, WRONG) > 1000


@pytest.mark.parametrize("count", [1, 9])
def test_grid_of_any_count(tmp_path: Path, count: int) -> None:
    items = [
        Prediction(picture(30, 10 + i), f"class {i}", "class 0", math.nan) for i in range(count)
    ]
    width, height = Image.open(draw_predictions(items, tmp_path / "grid.png")).size
    assert width < 3000
    assert height < 3000


def test_an_empty_grid_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="the list is empty"):
        draw_predictions([], tmp_path / "grid.png")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("missing", ["loss", "lr", "top1", None])
def test_curves_without_one_of_them(tmp_path: Path, missing: str | None) -> None:
    records = [{k: v for k, v in record.items() if k != missing} for record in scalars()]
    assert Image.open(draw_curves(records, tmp_path / "curves.png")).size == (1296, 420)


@pytest.mark.parametrize("epochs", [1, 2])
def test_labels_and_last_markers_are_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, epochs: int
) -> None:
    drawn: list[Figure] = []
    monkeypatch.setattr(curves, "save_figure", lambda figure, out: drawn.append(figure))
    records = [{"val/top1": 80.0 + e, "val/loss": 1.0721 + e / 1e4, "epoch": e + 1} for e in (0, 1)]
    draw_curves(records[:epochs], tmp_path / "curves.png")
    figure = drawn[0]
    figure.savefig(tmp_path / "curves.png")
    width, height = figure.bbox.size
    for axes in figure.axes:
        box = axes.get_tightbbox()
        assert min(box.x0, box.y0) > 3
        assert box.x1 < width - 3
        assert box.y1 < height - 30  # below the title
        for line in axes.lines:
            x, _ = axes.transData.transform(line.get_xydata()).max(axis=0)
            assert axes.bbox.x1 - x > figure.dpi / 72 * line.get_markersize() / 2


def test_non_finite_losses_are_marked_without_breaking_the_curve(tmp_path: Path) -> None:
    good = draw_curves(scalars(), tmp_path / "good.png")
    bad = draw_curves(scalars(lambda step: math.nan if step == 10 else 1.0), tmp_path / "bad.png")
    all_bad = draw_curves(scalars(lambda step: math.inf), tmp_path / "all.png")
    assert len({path.read_bytes() for path in (good, bad, all_bad)}) == 3


def test_single_records_and_top1_of_nan_can_be_drawn(tmp_path: Path) -> None:
    assert draw_curves([{"loss": 1.0, "iter": 1}], tmp_path / "one.png").is_file()
    records = [{"top1": math.nan, "step": 1}, {"lr": 0.0, "iter": 1}]
    assert draw_curves(records, tmp_path / "nan.png").is_file()


@pytest.mark.parametrize("records", [[], [{"time": 1.0, "iter": 3}], [{"loss": 1.0}]])
def test_nothing_to_draw_is_said(tmp_path: Path, records: list[dict]) -> None:
    with pytest.raises(UserError, match="no loss, learning rate or measure"):
        draw_curves(records, tmp_path / "curves.png")


@pytest.mark.parametrize("classes", [1, 10, 26, 101])
def test_confusion_of_any_number_of_classes(tmp_path: Path, classes: int) -> None:
    matrix = np.eye(classes, dtype=int) * 50
    matrix[0, -1] += 3
    names = [f"quite a long name of a class {i}" for i in range(classes)]
    with Image.open(draw_confusion(matrix.tolist(), names, tmp_path / "c.png")) as image:
        assert max(image.size) < 2000
        assert image.format == "PNG"


def test_confusion_of_a_thousand_classes_without_mistakes(tmp_path: Path) -> None:
    matrix = np.eye(1000, dtype=int).tolist()
    assert draw_confusion(matrix, [], tmp_path / "c.png").stat().st_size < 200_000


@pytest.mark.parametrize(
    "matrix, message",
    [
        ([], "must be square"),
        ([[1, 2, 3], [4, 5, 6]], "must be square, not of shape \\(2, 3\\)"),
        ([[1, 2], [3]], "not a table of numbers"),
        ([[1, -2], [3, 4]], "must hold counts"),
        ([[1, math.nan], [3, 4]], "must hold counts"),
    ],
)
def test_a_wrong_matrix_is_refused(tmp_path: Path, matrix: list, message: str) -> None:
    with pytest.raises(UserError, match=message):
        draw_confusion(matrix, ["a", "b"], tmp_path / "c.png")


def test_names_must_fit_the_matrix(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="of 2 classes, but 3 class names"):
        draw_confusion([[1, 0], [0, 1]], ["a", "b", "c"], tmp_path / "c.png")


def test_top_confusions_by_count_with_share_of_the_true_class() -> None:
    matrix = [[6, 2, 0], [0, 5, 5], [0, 0, 0]]
    assert top_confusions(matrix) == [(1, 2, 5, 0.5), (0, 1, 2, 0.25)]
    assert top_confusions(matrix, limit=1) == [(1, 2, 5, 0.5)]
    assert top_confusions([[3, 0], [0, 3]]) == []


def test_short_names_keep_their_end() -> None:
    assert short_name("tench") == "tench"
    assert short_name("n02110185 variant 17", 12) == "n0211018… 17"
    assert len(short_name("x" * 99)) == 18


def test_a_failed_write_leaves_the_old_picture(tmp_path: Path) -> None:
    out = tmp_path / "a.png"
    out.write_bytes(b"old")

    def fail(file: object) -> None:
        raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        write_whole(out, fail)
    assert out.read_bytes() == b"old"
    assert [path.name for path in tmp_path.iterdir()] == ["a.png"]


def test_importing_loads_neither_torch_nor_matplotlib() -> None:
    code = (
        "import sys, polaformer.visualization; "
        "sys.exit(bool({'torch', 'matplotlib', 'mmengine'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
