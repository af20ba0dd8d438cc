"""Names of classes and files of pictures as users have them, met by the tools."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from detection_toy import (
    CLASSES,
    DETECTORS,
    SIZE,
    digests,
    make_data,
    read_objects,
    recipe,
    write_objects,
)
from mmengine.registry import DATASETS, METRICS, init_default_scope
from PIL import Image
from tool_runs import TEST, TRAIN, log_of, losses, scalars, tool

from polaformer.config.load import load_config
from polaformer.evaluation import CocoMetric

# Names --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("script", [TRAIN, TEST], ids=["train", "test"])
def test_a_class_spelt_otherwise_stops_before_training(det, trained, tmp_path, capfd, script):
    path = recipe(tmp_path / "r.py", "retinanet", det, classes=("cat", "dog", "bird"))
    words = [path, "--device", "cpu", "--work-dir", tmp_path / "run"]
    if script is TEST:
        words.insert(1, trained("retinanet")[1])
    ended = tool(capfd, script, *words)
    assert ended.code == 2
    unknown, unused = ended.err.split("categories of the file that no class uses:")
    assert "'bird'" in unknown
    assert "did you mean 'Bird'?" in unknown
    assert "'Bird'" in unused
    assert "'cat'" not in ended.err
    assert "Traceback" not in ended.err
    assert not (tmp_path / "run").exists()


def test_truth_as_prediction_is_perfect_for_each_class_under_its_own_name(det, tmp_path):
    """The file names its categories in the order 7 cat, 3 dog, 90 Bird; the labels have another."""
    path = recipe(tmp_path / "r.py", "retinanet", det, classes=("dog", "Bird", "cat"))
    cfg = load_config(path)
    init_default_scope(cfg.default_scope)
    dataset = DATASETS.build(cfg.val_dataloader.dataset)
    assert dataset.metainfo["classes"] == ("dog", "Bird", "cat")
    assert dataset.metainfo["category_ids"] == (3, 90, 7)
    metric = METRICS.build(cfg.val_evaluator)
    metric.dataset_meta = dataset.metainfo
    for i in range(len(dataset)):
        metric.process(None, [perfect(dataset.get_data_info(i))])
    values = metric.evaluate(len(dataset))
    assert values["bbox_mAP"] == pytest.approx(1, abs=1e-9)
    rows = metric.last["per_class"]
    assert {name: round(row["bbox_mAP"], 9) for name, row in rows.items()} == dict.fromkeys(
        CLASSES, 1.0
    )
    written = {one["category_id"] for one in read_objects(det)["annotations"]}
    assert {row["category_id"] for row in metric._rows("bbox")} == written == {3, 7, 90}


def test_truth_under_a_wrong_name_is_not_perfect(det, tmp_path):
    """What the test above would miss if labels went to categories in the order of the file."""
    cfg = load_config(recipe(tmp_path / "r.py", "retinanet", det, classes=("dog", "Bird", "cat")))
    init_default_scope(cfg.default_scope)
    dataset = DATASETS.build(cfg.val_dataloader.dataset)
    metric = CocoMetric()
    metric.dataset_meta = {**dataset.metainfo, "category_ids": (7, 3, 90)}
    for i in range(len(dataset)):
        metric.process(None, [perfect(dataset.get_data_info(i))])
    assert metric.evaluate(len(dataset))["bbox_mAP"] < 0.5


def perfect(info: dict) -> dict:
    found = info["instances"]
    return {
        "img_id": info["img_id"],
        "ori_shape": (info["height"], info["width"]),
        "pred_instances": {
            "bboxes": torch.tensor([one["bbox"] for one in found]).reshape(-1, 4),
            "labels": torch.tensor([one["bbox_label"] for one in found]),
            "scores": torch.ones(len(found)),
        },
    }


# Files --------------------------------------------------------------------------------------------

AWKWARD = ("cut.jpg", "missing.png", "gray.png", "cmyk.jpg", "A.JPG")


@pytest.fixture
def awkward(det, tmp_path) -> Path:
    """The first five pictures in the forms of ``AWKWARD``; the sixth is as it was."""
    folder = tmp_path / "data"
    shutil.copytree(det, folder)
    content = read_objects(det)
    for entry, name in zip(content["images"], AWKWARD, strict=False):
        before, after = folder / "images" / entry["file_name"], folder / "images" / name
        image = Image.open(before).convert("RGB")
        before.unlink()
        if name == "gray.png":
            image = image.convert("L")
        if name == "cmyk.jpg":
            image = image.convert("CMYK")
        if name != "missing.png":
            image.save(after, **({"quality": 95} if name.lower().endswith("jpg") else {}))
        if name == "cut.jpg":
            data = after.read_bytes()
            after.write_bytes(data[: len(data) * 6 // 10])
        entry["file_name"] = name
    write_objects(folder, content["images"], content["annotations"])
    return folder


def test_bad_files_stop_before_the_first_epoch_by_name(awkward, det, tmp_path, capfd):
    before = digests(awkward)
    path = recipe(tmp_path / "r.py", "retinanet", awkward, det)
    ended = tool(capfd, TRAIN, path, "--device", "cpu", "--work-dir", tmp_path / "run")
    assert ended.code == 2
    assert "cut.jpg" in ended.err
    assert "missing.png" in ended.err
    assert not any(name in ended.err for name in ("gray.png", "cmyk.jpg", "A.JPG", "5.png"))
    assert "on_error='skip'" in ended.err
    assert "Traceback" not in ended.err
    assert "Epoch(train)" not in log_of(tmp_path / "run")
    assert digests(awkward) == before


@pytest.mark.parametrize("detector", ["retinanet", "mask_rcnn"])
def test_bad_files_are_skipped_by_name_when_asked(awkward, tmp_path, capfd, detector):
    before = digests(awkward)
    path = recipe(tmp_path / "r.py", detector, awkward)
    loaders = ("train_dataloader", "val_dataloader", "test_dataloader")
    words = [f"{loader}.dataset.on_error=skip" for loader in loaders]
    words = [path, "--device", "cpu", "--work-dir", tmp_path / "run", "--cfg-options", *words]
    ended = tool(capfd, TRAIN, *words, "train_cfg.max_epochs=1")
    assert ended.code == 0, ended.err
    log = log_of(tmp_path / "run")
    (told, *_) = [line for line in log.splitlines() if "2 skipped: " in line]
    assert "cut.jpg" in told
    assert "missing.png" in told
    assert "4 images used, 0 without objects" in log
    assert len(losses(tmp_path / "run")) == 2
    assert np.isfinite(losses(tmp_path / "run")).all()
    assert any("val/bbox_mAP" in line for line in scalars(tmp_path / "run"))
    assert digests(awkward) == before


def test_gray_and_cmyk_pictures_have_the_colours_of_their_twins(awkward, det, tmp_path):
    cfg = load_config(recipe(tmp_path / "r.py", "retinanet", awkward))
    init_default_scope(cfg.default_scope)
    loader = cfg.train_dataloader.dataset
    loader.update(on_error="skip", pipeline=loader.pipeline[:1])
    dataset = DATASETS.build(loader)
    found = {Path(dataset.get_data_info(i)["img_path"]).name: dataset[i] for i in range(4)}
    for position, name in ((2, "gray.png"), (3, "cmyk.jpg"), (4, "A.JPG")):
        image = Image.open(det / "images" / f"{position}.png").convert("RGB")
        twin = image.convert("L").convert("RGB") if name == "gray.png" else image
        pixels = found[name]["img"]
        assert (pixels.shape, pixels.dtype) == ((96, 128, 3), np.uint8)
        wanted = np.asarray(twin)[..., ::-1].mean((0, 1))  # blue first, as mmdet has it
        np.testing.assert_allclose(pixels.mean((0, 1)), wanted, atol=3)


# Sizes and numbers --------------------------------------------------------------------------------


@pytest.mark.parametrize("detector", DETECTORS)
def test_pictures_of_few_pixels_and_small_sets(tmp_path, capfd, detector):
    """One picture to train on, of 33 x 17 pixels; validated on two, the smaller of 9 x 7."""
    train = make_data(tmp_path / "train", [(33, 17)])
    val = make_data(tmp_path / "val", [(33, 17), (9, 7)])
    # Cascade's region proposals lie inside of the picture and have 32 pixels or more.
    size = SIZE if detector.startswith("cascade") else (33, 33)
    path = recipe(tmp_path / "r.py", detector, train, val, size=size)
    ended = tool(capfd, TRAIN, path, "--device", "cpu", "--work-dir", tmp_path / "run")
    assert ended.code == 0, ended.err
    assert np.isfinite(losses(tmp_path / "run")).all()
    assert len(losses(tmp_path / "run")) == 2
    assert any("val/bbox_mAP" in line for line in scalars(tmp_path / "run"))


@pytest.mark.parametrize("detector", ["retinanet", "mask_rcnn"])
def test_a_validation_set_without_any_object_says_so(det, tmp_path, capfd, detector):
    val = make_data(tmp_path / "val", [(64, 48)] * 2, empty=(0, 1))
    path = recipe(tmp_path / "r.py", detector, det, val)
    words = (path, "--device", "cpu", "--work-dir", tmp_path / "run")
    ended = tool(capfd, TRAIN, *words, "--cfg-options", "train_cfg.max_epochs=1")
    assert ended.code == 0, ended.err
    log = log_of(tmp_path / "run")
    assert "2 images used, 2 without objects" in log
    assert re.search("has no object in the 2 pictures: no AP", log)
    assert not any("val/bbox_mAP" in line for line in scalars(tmp_path / "run"))
    assert (tmp_path / "run" / "epoch_1.pth").is_file()
    ended = tool(capfd, TEST, path, tmp_path / "run", "--device", "cpu")
    assert ended.code == 0, ended.err
