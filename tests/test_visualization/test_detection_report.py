"""The page and the pictures of a run that measures no accuracy of whole images."""

from __future__ import annotations

import base64
import io
import json
import os
import re
from pathlib import Path

import numpy as np
import pytest
from conftest_detection import MEASURES, save_picture
from conftest_visualization import write
from matplotlib.figure import Figure
from PIL import Image

from polaformer.errors import UserError
from polaformer.visualization import curves, draw_classes, load_results, write_report
from polaformer.visualization.measures import ClassTable
from polaformer.visualization.pictures import draw_pictures


def page_of(work_dir: Path) -> str:
    return write_report(work_dir).read_text(encoding="utf-8")


def shown_pictures(html: str) -> list[Image.Image]:
    data = re.findall(r'src="data:image/\w+;base64,([^"]+)"', html)
    return [Image.open(io.BytesIO(base64.b64decode(text))) for text in data]


def grey_of(image: Image.Image) -> int:
    return int(np.asarray(image.convert("L")).mean().round())


def test_a_finished_detection_run(detection_run: Path) -> None:
    html = page_of(detection_run)
    assert "0.6251 box AP on 7 test images</p>" in html
    assert "None found in run card, scalars and log." in html
    assert "<td>mask AP at IoU 0.50</td><td class=number>0.6251</td>" in html
    assert "top-1" not in html
    assert "Confusion" not in html
    row = "<td>dog</td><td class=number>4</td><td class=number>9</td><td class=number>0.1250</td>"
    assert row in html
    assert html.index("<td>dog</td>") < html.index("<td>cat</td>") < html.index("<td>owl</td>")
    assert "<td class=number>n/a</td>" in html
    for name in ("curves", "classes", "overview"):
        assert (detection_run / f"{name}.png").is_file()
    assert not (detection_run / "confusion.png").exists()


def test_the_best_epoch_is_that_of_the_main_measure(detection_run: Path) -> None:
    html = page_of(detection_run)
    assert "<td>best</td><td class=number>2</td>" in html
    assert "<td>last</td><td class=number>3</td>" in html


def test_the_newest_picture_is_shown_and_the_first_one_folded(detection_run: Path) -> None:
    html = page_of(detection_run)
    assert "<figcaption>after epoch 3</figcaption>" in html
    assert "the same after epoch 1" in html
    samples = [grey_of(image) for image in shown_pictures(html) if image.size == (80, 60)]
    assert samples == [30, 10]
    save_picture(detection_run, "test", 200)
    html = page_of(detection_run)
    assert "<figcaption>after the test</figcaption>" in html
    assert [name for name, _ in load_results(detection_run).sample_pictures] == [
        "test",
        "epoch 3",
        "epoch 2",
        "epoch 1",
    ]


def test_pictures_of_an_earlier_run_are_not_shown(detection_run: Path) -> None:
    for path in (detection_run / "pictures").glob("*.png"):
        os.utime(path, (1_000_000_000, 1_000_000_000))  # 2001-09-09 UTC
    write(detection_run, "run_card.json", {"started": "2001-09-09 03:46:41+0200"})
    assert load_results(detection_run).sample_pictures == []
    write(detection_run, "run_card.json", {"started": "2001-09-09 03:46:39+0200"})
    assert len(load_results(detection_run).sample_pictures) == 3


def test_a_detection_run_that_goes_on(detection_run: Path) -> None:
    for name in ("metrics.json", "predictions.bbox.json"):
        (detection_run / name).unlink()
    html = page_of(detection_run)
    assert "No test result yet; 0.7500 box AP in validation, epoch 2" in html
    assert "missing: predictions.*.json (single predictions): not written yet" in html
    assert "after epoch 3" in html
    assert "confusion" not in html


@pytest.mark.parametrize("per_class", [None, [], {}, {"cat": 7}, {"cat": {"objects": "x"}}, 3])
def test_broken_values_per_class_never_stop_the_page(detection_run: Path, per_class) -> None:
    content = json.loads((detection_run / "metrics.json").read_text())
    write(detection_run, "metrics.json", {**content, "per_class": per_class})
    assert "0.6251 box AP" in page_of(detection_run)


def test_a_measure_that_does_not_exist_is_said(detection_run: Path) -> None:
    content = json.loads((detection_run / "metrics.json").read_text())
    content["metrics"] = {"bbox_mAP": None, "bbox_mAP_50": None}
    write(detection_run, "metrics.json", content)
    assert "n/a box AP on 7 test images" in page_of(detection_run)


@pytest.mark.parametrize("validated", [True, False])
def test_a_test_that_could_measure_nothing_is_a_test(detection_run: Path, validated: bool) -> None:
    """As of a set without any object."""
    write(detection_run, "metrics.json", {"metrics": {}, "num_images": 5, "num_objects": 0})
    if not validated:
        (detection_run / "scalars.json").write_text('{"lr": 0.1, "loss": 1.0, "step": 1}\n')
    html = page_of(detection_run)
    assert "No test result yet" not in html
    end = "; 0.7500 box AP in validation, epoch 2" if validated else ""
    assert f"Tested on 5 images without any object: nothing to measure{end}</p>" in html


def test_a_test_with_augmentation_says_so(detection_run: Path) -> None:
    content = json.loads((detection_run / "metrics.json").read_text())
    write(detection_run, "metrics.json", {**content, "tta": True})
    assert "on 7 test images with test-time augmentation" in page_of(detection_run)


def test_a_large_picture_goes_in_as_jpeg(detection_run: Path) -> None:
    noise = np.random.default_rng(0).integers(0, 256, (700, 2000, 3), dtype=np.uint8)
    Image.fromarray(noise).save(detection_run / "pictures" / "epoch_3.png")
    html = page_of(detection_run)
    assert html.count("data:image/jpeg") == 1
    assert shown_pictures(html)[0].size == (1600, 560)


def test_curves_have_a_panel_for_each_family(
    detection_run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn: list[Figure] = []
    monkeypatch.setattr(curves, "save_figure", lambda figure, out: drawn.append(figure))
    curves.draw_curves(load_results(detection_run).scalars, "unused.png")
    titles = [axes.get_title(loc="left") for axes in drawn[0].axes]
    assert titles == [
        "Loss",
        "Parts of the training loss",
        "Box AP (validation)",
        "Mask AP (validation)",
        "Learning rate",
    ]
    parts = [line.get_label() for line in drawn[0].axes[1].lines]
    assert parts == ["loss_rpn_cls", "loss_bbox", "s0.loss_mask"]
    boxes = drawn[0].axes[2]
    assert len(boxes.lines) == len(MEASURES) / 2 + 1  # one marks the best
    for axes in drawn[0].axes[2:4]:
        named = [text.get_text() for text in axes.get_legend().get_texts()]
        assert named[0] == "IoU 0.50 to 0.95"
        assert named[1] == "at IoU 0.50"
        assert named[-1] == "best 0.7500, epoch 2"


@pytest.mark.parametrize("count", [1, 31, 80, 300])
def test_bars_of_any_number_of_classes(tmp_path: Path, count: int) -> None:
    rows = [(f"quite a long name of a class {i}", (3, i / count)) for i in range(count)]
    table = ClassTable(("objects", "bbox_mAP"), [*rows, ("unseen", (0, None))])
    with Image.open(draw_classes(table, tmp_path / "c.png")) as image:
        assert max(image.size) < 2000


def test_no_bars_without_values(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no values per class"):
        draw_classes(ClassTable(("images",), [("cat", (3,))]), tmp_path / "c.png")


def test_an_overview_without_samples(detection_run: Path) -> None:
    for path in (detection_run / "pictures").glob("*.png"):
        path.unlink()
    drawn, problems = draw_pictures(load_results(detection_run))
    assert set(drawn) == {"curves", "classes", "overview"}
    assert problems == []
