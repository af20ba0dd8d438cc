"""The same numbers however a segmentor is tested or validated."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from segmentation_toy import recipe, results, validated
from tool_runs import TEST, TRAIN, tool, tool_in_processes
from torch import nn

from polaformer.checkpoint import CheckpointError, load_weights
from polaformer.registry import MODELS


@pytest.mark.slow
def test_any_number_of_processes_repeats_the_validation(trained, tmp_path, capfd):
    """Seven images of several sizes: metrics, confusion and every predicted pixel."""
    path, folder = trained
    found = []
    for count in (1, 2, 3):
        words = (TEST, path, folder, "--device", "cpu", "--work-dir", tmp_path / str(count))
        if count == 1:
            assert tool(capfd, *words).code == 0
        else:
            tool_in_processes(count, tmp_path / f"logs_{count}", *words)
        found.append(results(tmp_path / str(count)))
    assert found[0]["num_images"] == 7
    assert {f"{number}.png" for number in range(7)} <= set(found[0])
    assert found[1] == found[0]
    assert found[2] == found[0]
    assert found[0]["metrics"] == validated(folder)
    assert 20 < found[0]["metrics"]["mIoU"] < 100  # nothing and all would prove nothing


def test_a_test_of_several_views_says_so(trained, tmp_path, capfd):
    path, folder = trained
    words = (TEST, path, folder, "--device", "cpu", "--tta", "--work-dir", tmp_path)
    ended = tool(capfd, *words)
    assert ended.code == 0, ended.err
    found = results(tmp_path)
    assert found["tta"] is True
    assert found["num_images"] == 7
    assert "predictions/" in ended.out
    assert found["metrics"] != validated(folder)


@pytest.mark.parametrize("views", [[], ["--tta"]])
def test_prediction_without_label_images_leaves_what_was_measured(trained, tmp_path, capfd, views):
    path, folder = trained
    own = Path(shutil.copytree(folder, tmp_path / "run"))
    (own / "metrics.json").write_text("{}")
    words = (TEST, path, own, "--device", "cpu", *views, "--cfg-options")
    options = ("test_dataloader.dataset.data_prefix.seg_map_path=None",)
    ended = tool(capfd, *words, *options, "test_evaluator.format_only=True")
    assert ended.code == 0, ended.err
    assert (own / "metrics.json").read_text() == "{}"
    found = results(own / f"predict_{Path(path).stem}")
    assert found["metrics"] == {}
    assert {f"{number}.png" for number in range(7)} <= set(found)


def test_the_same_classes_in_another_order_are_refused(trained, tmp_path, capfd):
    path, folder = trained
    words = (TEST, path, folder, "--device", "cpu", "--work-dir", tmp_path)
    ended = tool(capfd, *words, "--cfg-options", "classes=('background','bar','box')")
    assert ended.code == 2
    assert "trained on other classes: 3 (background, box, bar) there" in ended.err


def test_the_file_of_a_segmentor_given_to_a_classifier_is_named(trained):
    """The same backbone may be taken, and the report says from what; another one stops."""
    _, folder = trained
    told = "the file is of a model of type Segmentor, the config builds a ImageClassifier"
    report = load_weights(classifier("polaformer.PolaPVT"), folder / "iter_20.pth")
    assert report.other_kind == told
    assert (report.scope, report.loaded == report.total) == ("backbone", True)
    with pytest.raises(CheckpointError, match=told):
        load_weights(classifier("polaformer.PolaSwin"), folder / "iter_20.pth")


def classifier(backbone: str) -> nn.Module:
    return MODELS.build(
        dict(
            type="polaformer.ImageClassifier",
            backbone=dict(type=backbone, arch="nano", img_size=64),
            head=dict(type="polaformer.LinearHead", num_classes=3),
        )
    )


RAW = [[0, 1, 1, 2], [2, 3, 255, 1]]
PREDICTED = [[0, 0, 1, 1], [1, 2, 0, 0]]
STUB = """
custom_imports = dict(imports=["segmentation_toy"])
model = dict(
    _delete_=True,
    type="polaformer.ToyMap",
    labels={labels},
    data_preprocessor=dict(type="SegDataPreProcessor", size=(4, 4), seg_pad_val=255),
)
train_dataloader = dict(dataset=dict(reduce_zero_label=True, pipeline={steps}))
val_dataloader = dict(dataset=dict(reduce_zero_label=True, pipeline={steps}))
test_dataloader = dict(dataset=dict(reduce_zero_label=True, pipeline={steps}))
train_cfg = dict(max_iters=1, val_interval=1)
"""


def raw_labels(folder: Path) -> Path:
    for name, pixels in (("images", np.full((2, 4, 3), 90)), ("masks", np.array(RAW))):
        (folder / name).mkdir(parents=True)
        Image.fromarray(pixels.astype(np.uint8)).save(folder / name / "0.png")
    return folder


def test_the_zero_label_is_left_out_once(tmp_path, capfd):
    """Raw 0 is ignored, 1 to 3 are the classes, 255 stays; by hand: 1, 2 and 2 of 3 right."""
    kinds = ("polaformer.LoadImage", "polaformer.LoadMask", "PackSegInputs")
    extra = STUB.format(labels=PREDICTED, steps=[{"type": kind} for kind in kinds])
    data = raw_labels(tmp_path / "data")
    classes = ("a", "b", "c")
    path = recipe(tmp_path / "r.py", "semantic_fpn", data, classes=classes, batch_size=1)
    parent = path.with_name(f"base_{path.name}")
    path.write_text(f"_base_ = '{parent}'\n{extra}")
    run = tmp_path / "run"
    ended = tool(capfd, TRAIN, path, "--device", "cpu", "--work-dir", run)
    assert ended.code == 0, ended.err
    ended = tool(capfd, TEST, path, run, "--device", "cpu", "--work-dir", tmp_path / "test")
    assert ended.code == 0, ended.err
    found = results(tmp_path / "test")
    assert found["metrics"] == validated(run)
    rounded = {key: round(value, 2) for key, value in found["metrics"].items()}
    assert {key: rounded[key] for key in ("mIoU", "mAcc", "aAcc")} == {
        "mIoU": 77.78,
        "mAcc": 88.89,
        "aAcc": 83.33,
    }
    assert {name: round(row["IoU"], 2) for name, row in found["per_class"].items()} == {
        "a": 66.67,
        "b": 66.67,
        "c": 100.0,
    }
    assert found["0.png"] == PREDICTED
