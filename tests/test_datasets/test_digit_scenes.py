"""Digit scenes: what is written is true of the pictures, repeatable, and never overwrites."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from pycocotools.coco import COCO
from pycocotools.mask import decode
from sklearn.datasets import load_digits

from polaformer.datasets.prepare import scene_drawing
from polaformer.datasets.prepare.digit_scenes import _glyphs, prepare_digit_scenes
from polaformer.datasets.prepare.digits import prepare_digits
from polaformer.datasets.prepare.scene_drawing import draw_scene
from polaformer.errors import UserError

TOOL = Path(__file__).resolve().parents[2] / "tools" / "prepare_data.py"
TRAIN, VAL = 50, 12


@pytest.fixture(scope="module")
def scenes(tmp_path_factory) -> Path:
    folder, reused = prepare_digit_scenes(
        tmp_path_factory.mktemp("data") / "scenes", train=TRAIN, val=VAL
    )
    assert not reused
    return folder


@pytest.fixture(scope="module")
def main():
    spec = importlib.util.spec_from_file_location("prepare_data_tool", TOOL)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.main


def contents(folder: Path) -> dict[str, str]:
    return {
        path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in folder.rglob("*")
        if path.is_file()
    }


def annotations(folder: Path, split: str) -> dict:
    return json.loads((folder / "annotations" / f"{split}.json").read_text())


@pytest.mark.parametrize(("split", "count"), [("train", TRAIN), ("val", VAL)])
def test_boxes_masks_and_labels_are_of_the_visible_pixels(scenes, split, count):
    content = annotations(scenes, split)
    assert len(content["images"]) == count
    assert [one["name"] for one in content["categories"]] == list("0123456789")
    assert [one["id"] for one in content["categories"]] == list(range(1, 11))
    by_image: dict[int, list[dict]] = {image["id"]: [] for image in content["images"]}
    for one in content["annotations"]:
        by_image[one["image_id"]].append(one)
    for image in content["images"]:
        with Image.open(scenes / split / image["file_name"]) as picture:
            assert picture.mode == "RGB"
            assert picture.size == (image["width"], image["height"])
        labels = np.asarray(Image.open(scenes / f"{split}_labels" / image["file_name"]))
        assert labels.shape == (image["height"], image["width"])
        expected = np.zeros_like(labels)
        for one in by_image[image["id"]]:
            mask = decode(one["segmentation"]).astype(bool)
            assert mask.sum() == one["area"] > 0
            assert one["iscrowd"] == 0
            assert not expected[mask].any()  # of two digits only one is seen
            expected[mask] = one["category_id"]
            x, y, width, height = one["bbox"]
            outside = mask.copy()
            outside[y : y + height, x : x + width] = False
            assert not outside.any()
            inside = mask[y : y + height, x : x + width]
            assert inside.shape == (height, width)
            assert all(side.any() for side in (inside[0], inside[-1], inside[:, 0], inside[:, -1]))
        np.testing.assert_array_equal(labels, expected)


def test_pycocotools_reads_them(scenes):
    coco = COCO(scenes / "annotations" / "val.json")
    assert len(coco.getImgIds()) == VAL
    assert {coco.annToMask(one).sum() == one["area"] for one in coco.anns.values()} == {True}


def test_sizes_are_mixed_and_a_few_scenes_are_empty(scenes):
    content = annotations(scenes, "train")
    sizes = {(image["width"], image["height"]) for image in content["images"]}
    assert len(sizes) > TRAIN // 2
    assert all(96 <= side <= 192 for size in sizes for side in size)
    counts = Counter(one["image_id"] for one in content["annotations"])
    assert TRAIN - len(counts) == 1
    assert set(counts.values()) <= set(range(1, 10))
    assert max(counts.values()) > 3


def test_no_handwriting_is_in_both_splits_and_the_split_is_that_of_the_digits(tmp_path):
    data = load_digits()
    train, val = (_glyphs(3, split) for split in ("train", "val"))
    folder, _ = prepare_digits(tmp_path / "digits", seed=3, size=8)
    for digit in range(10):
        assert len(train[digit]) + len(val[digit]) == (data.target == digit).sum()
        numbers = [int(p.stem.removeprefix("digit_")) for p in (folder / f"val/{digit}").iterdir()]
        np.testing.assert_array_equal(val[digit] * 16, data.images[sorted(numbers)])


def test_later_digits_leave_more_than_half_of_earlier_ones():
    data = load_digits()
    glyphs = [data.images[data.target == digit] / 16 for digit in range(10)]
    seen = []
    for seed in range(30):
        _, placed = draw_scene(np.random.default_rng(seed), glyphs)
        assert placed
        seen += [one.mask.sum() / one.pixels for one in placed]
    assert 0.5 < min(seen) < 0.95  # some are hidden in part
    assert max(seen) == 1


def test_the_same_options_give_the_same_bytes_and_a_larger_set_begins_with_the_smaller(
    tmp_path, scenes
):
    again, _ = prepare_digit_scenes(tmp_path / "again", train=TRAIN, val=VAL)
    assert contents(again) == contents(scenes)
    small, _ = prepare_digit_scenes(tmp_path / "small", train=3, val=2)
    for name, digest in contents(small).items():
        if name.endswith(".png"):
            assert contents(scenes)[name] == digest
    other, _ = prepare_digit_scenes(tmp_path / "other", seed=1, train=3, val=2)
    assert contents(other)["train/train_0001.png"] != contents(small)["train/train_0001.png"]


def test_running_again_reuses_what_is_there(scenes):
    before = {path: path.stat().st_mtime_ns for path in scenes.rglob("*")}
    assert prepare_digit_scenes(scenes, train=TRAIN, val=VAL) == (scenes, True)
    assert prepare_digit_scenes(scenes, train=TRAIN, val=VAL, force=True) == (scenes, True)
    assert {path: path.stat().st_mtime_ns for path in scenes.rglob("*")} == before


def test_a_changed_folder_is_replaced_only_with_force(tmp_path):
    folder, _ = prepare_digit_scenes(tmp_path / "d", train=2, val=1)
    whole = contents(folder)
    with pytest.raises(UserError, match=r"train is 2, asked for 3.*--force"):
        prepare_digit_scenes(folder, train=3, val=1)
    changed = folder / "annotations" / "val.json"
    changed.write_text("{}")
    with pytest.raises(UserError, match=r"annotations/val\.json was changed"):
        prepare_digit_scenes(folder, train=2, val=1)
    changed.unlink()
    with pytest.raises(UserError, match="1 of its files are missing"):
        prepare_digit_scenes(folder, train=2, val=1)
    (folder / "SHA256SUMS").unlink()
    with pytest.raises(UserError, match="SHA256SUMS is missing"):
        prepare_digit_scenes(folder, train=2, val=1)
    assert prepare_digit_scenes(folder, train=2, val=1, force=True) == (folder, False)
    assert contents(folder) == whole
    assert os.listdir(tmp_path) == ["d"]


def test_scenes_that_an_earlier_version_drew_are_not_taken_for_these(tmp_path, monkeypatch):
    folder, _ = prepare_digit_scenes(tmp_path / "d", train=2, val=1)
    drawn = contents(folder)
    monkeypatch.setattr(scene_drawing, "_SIDES", (100, 110))
    with pytest.raises(UserError, match=r"train_0001\.png is now drawn otherwise.*--force"):
        prepare_digit_scenes(folder, train=2, val=1)
    assert contents(folder) == drawn
    assert prepare_digit_scenes(folder, train=2, val=1, force=True) == (folder, False)
    assert contents(folder) != drawn


@pytest.mark.parametrize("force", [False, True])
def test_other_files_are_never_overwritten(tmp_path, force):
    mixed, _ = prepare_digit_scenes(tmp_path / "mixed", train=2, val=1)
    (mixed / "train" / "mine.png").write_bytes(b"x")
    with pytest.raises(UserError, match=r"train/mine\.png.*never overwritten"):
        prepare_digit_scenes(mixed, train=2, val=1, force=force)
    assert (mixed / "train" / "mine.png").exists()
    digits, _ = prepare_digits(tmp_path / "digits", size=8)
    with pytest.raises(UserError, match="never overwritten"):
        prepare_digit_scenes(digits, train=2, val=1, force=force)
    assert (digits / "digits.json").exists()


def test_nothing_is_left_behind_when_writing_fails(tmp_path, monkeypatch):
    def fail(self, data):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", fail)
    with pytest.raises(UserError, match="No space left on device"):
        prepare_digit_scenes(tmp_path / "d", train=2, val=1)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("options", [{"seed": -1}, {"train": 0}, {"val": 0}, {"train": 10**6}])
def test_options_out_of_range(tmp_path, options):
    with pytest.raises(UserError, match=next(iter(options))):
        prepare_digit_scenes(tmp_path / "d", **options)


def test_the_tool_writes_and_reuses(tmp_path, main, capsys):
    command = ["digit-scenes", "--out", str(tmp_path / "d"), "--train", "2", "--val", "1"]
    assert main(command) == 0
    assert capsys.readouterr().out == f"{tmp_path / 'd'}: written\n"
    assert main(command) == 0
    assert "already there, complete and unchanged" in capsys.readouterr().out
    with pytest.raises(UserError, match="seed is 0, asked for 5"):
        main([*command, "--seed", "5"])
    assert main([*command, "--seed", "5", "--force"]) == 0
