"""The page and the pictures of a run that classifies pixels and counts iterations."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from conftest_segmentation import CONFUSION
from conftest_visualization import write
from matplotlib.figure import Figure
from PIL import Image

from polaformer.visualization import confusion, curves, draw_confusion, load_results, write_report
from polaformer.visualization.pictures import draw_pictures
from polaformer.visualization.results import unit_of


def page_of(work_dir: Path) -> str:
    return write_report(work_dir).read_text(encoding="utf-8")


def test_a_finished_segmentation_run(segmentation_run: Path) -> None:
    html = page_of(segmentation_run)
    assert "67.86 % mIoU on 7 test images</p>" in html
    assert "None found in run card, scalars and log." in html
    assert "<td>mDice, mean Dice per class (%)</td><td class=number>79.50</td>" in html
    assert "top-1" not in html
    row = "<td>dog</td><td class=number>50.00</td><td class=number>75.00</td>"
    assert row in html
    assert html.index("<td>dog</td><td class=number>50") < html.index("<td>background</td><td cl")
    assert "<td>owl</td><td class=number>n/a</td>" in html
    assert "<th>true pixels</th>" in html
    assert "<td>background</td><td>dog</td><td class=number>100</td><td class=number>10.0" in html
    assert "<th>pixels</th><th>share of the class (%)</th>" in html
    for name in ("curves", "classes", "confusion", "overview"):
        assert (segmentation_run / f"{name}.png").is_file()


def test_iterations_are_called_iterations(segmentation_run: Path) -> None:
    html = page_of(segmentation_run)
    assert "epoch" not in html.lower().replace("epochs shown", "")
    assert "<h2>Validations</h2>" in html
    assert "<th>iteration</th><th>training loss</th><th>validation loss</th>" in html
    assert "<td class=number>800</td><td class=number>0.1875</td><td class=number>0.5000" in html
    assert "<figcaption>after iteration 800</figcaption>" in html
    assert "the same after iteration 400" in html
    assert "Loss, measures and learning rate over iterations." in html


def test_a_segmentation_run_that_goes_on(segmentation_run: Path) -> None:
    (segmentation_run / "metrics.json").unlink()
    shutil.rmtree(segmentation_run / "predictions")
    html = page_of(segmentation_run)
    assert "No test result yet; 60.00 % mIoU in validation, iteration 800" in html
    assert "missing: predictions/ (label images): not written yet" in html
    assert not (segmentation_run / "confusion.png").exists()


def test_a_test_whose_pixels_are_all_ignored_is_a_test(segmentation_run: Path) -> None:
    content = json.loads((segmentation_run / "metrics.json").read_text())
    empty = {**content, "metrics": {}, "num_pixels": 0, "confusion": np.zeros((3, 3)).tolist()}
    write(segmentation_run, "metrics.json", empty)
    html = page_of(segmentation_run)
    assert "Tested on 7 images without a pixel that counts: nothing to measure; 60.00 %" in html


@pytest.mark.parametrize("confusion_matrix", [None, [], [[1]], "x", [[-1, 0, 0]] * 3])
def test_a_broken_matrix_never_stops_the_page(segmentation_run: Path, confusion_matrix) -> None:
    content = json.loads((segmentation_run / "metrics.json").read_text())
    write(segmentation_run, "metrics.json", {**content, "confusion": confusion_matrix})
    html = page_of(segmentation_run)
    assert "67.86 % mIoU" in html
    assert "no picture &#x27;confusion&#x27;" in html


def test_curves_over_iterations(segmentation_run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[Figure] = []
    monkeypatch.setattr(curves, "save_figure", lambda figure, out: drawn.append(figure))
    curves.draw_curves(load_results(segmentation_run).scalars, "unused.png")
    panels = drawn[0].axes
    titles = [axes.get_title(loc="left") for axes in panels]
    assert titles == ["Loss", "Parts of the training loss", "mIoU (validation)", "Learning rate"]
    assert {axes.get_xlabel() for axes in panels} == {"iteration"}
    assert list(panels[0].lines[0].get_xdata()) == list(range(100, 900, 100))
    assert list(panels[0].lines[1].get_xdata()) == [400, 800]
    assert max(panels[2].get_yticks()) <= 100 < panels[2].get_ylim()[1]
    named = [text.get_text() for text in panels[2].get_legend().get_texts()]
    assert named == ["mIoU", "mAcc", "aAcc", "mDice", "best 60.00 %, iteration 800"]


@pytest.mark.parametrize(
    ("records", "unit"),
    [
        ([], "epoch"),
        ([{"lr": 1.0, "iter": 5, "step": 5}], "iteration"),
        ([{"lr": 1.0, "epoch": 1, "iter": 5, "step": 5}], "epoch"),
        ([{"val/mIoU": 1.0, "iter": 5, "step": 5}], "iteration"),
        ([{"val/mIoU": 1.0, "epoch": 1, "iter": 5, "step": 5}], "epoch"),
        ([{"val/mIoU": 1.0, "epoch": 0, "iter": 5, "step": 5}], "iteration"),
        ([{"top1": 1.0, "step": 5}], "epoch"),
    ],
)
def test_what_a_run_is_counted_in(records: list[dict], unit: str) -> None:
    assert unit_of(records) == unit


def drawn_confusion(monkeypatch: pytest.MonkeyPatch, matrix, **options) -> Figure:
    drawn: list[Figure] = []
    monkeypatch.setattr(confusion, "save_figure", lambda figure, out: drawn.append(figure))
    names = [f"class {number}" for number in range(len(matrix))]
    draw_confusion(matrix, names, "unused.png", **options)
    return drawn[0]


def test_pixels_are_shown_as_shares_of_their_class(monkeypatch: pytest.MonkeyPatch) -> None:
    matrix = [[900, 100, 0], [1, 999, 0], [0, 0, 0]]
    axes = drawn_confusion(monkeypatch, matrix, unit="pixels").axes[0]
    assert [text.get_text() for text in axes.texts] == ["90", "10", "<1", ">99"]
    assert "share of its pixels" in axes.get_ylabel()
    axes = drawn_confusion(monkeypatch, CONFUSION).axes[0]
    assert [text.get_text() for text in axes.texts] == ["900", "100", "50", "150"]
    assert "share of its images" in axes.get_ylabel()


def test_150_classes_are_colours_beside_the_worst_pairs(monkeypatch: pytest.MonkeyPatch) -> None:
    matrix = np.diag(np.full(150, 10_000_000))
    matrix[3, 7] = 2_000_000
    figure = drawn_confusion(monkeypatch, matrix, unit="pixels")
    heat, bars = figure.axes
    shown = np.asarray(heat.images[0].get_array())
    assert shown.shape == (150, 150)
    assert shown[3, 7] == pytest.approx((2 / 12) ** 0.5)
    assert len(heat.texts) == 0
    assert heat.get_window_extent().height / 150 > 4  # pixels of a class, at 100 a inch
    assert [text.get_text() for text in bars.get_yticklabels()] == ["class 3 → class 7"]
    assert "pixels" in bars.get_xlabel()


def test_the_overview_holds_the_confusion(segmentation_run: Path) -> None:
    drawn, problems = draw_pictures(load_results(segmentation_run))
    assert set(drawn) == {"curves", "confusion", "classes", "predictions", "overview"}
    assert problems == []
    with Image.open(drawn["overview"]) as image:
        assert image.width <= 1300
