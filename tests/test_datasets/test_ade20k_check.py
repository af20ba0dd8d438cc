"""What the check of ADE20K finds, on small folders of which every flaw is known."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import shutil
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from picture_sets import cut, noisy
from PIL import Image

from polaformer.datasets import progress
from polaformer.datasets.class_sets import class_set
from polaformer.datasets.prepare.ade20k_check import check_ade20k
from polaformer.datasets.prepare.check import Report
from polaformer.errors import UserError

TOOL = Path(__file__).resolve().parents[2] / "tools" / "prepare_data.py"
NAMES = class_set("ade20k").classes


def labels(*values: int) -> Image.Image:
    """A column of 8 pixels for each value, 12 pixels high."""
    return Image.fromarray(np.repeat(np.array([values], np.uint8), 8, axis=1).repeat(12, axis=0))


def add(root: Path, split: str, number: int, mask: Image.Image) -> tuple[Path, Path]:
    """Write an image of the size of ``mask``, and the mask; their paths."""
    name = f"ADE_{'train' if split == 'training' else 'val'}_{number:08d}"
    image = root / "images" / split / f"{name}.jpg"
    label = root / "annotations" / split / f"{name}.png"
    for path in (image, label):
        path.parent.mkdir(parents=True, exist_ok=True)
    noisy((90, 120, 40), number, (mask.height, mask.width)).save(image)
    mask.save(label)
    return image, label


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Two training images and one for validation; 0 is 'other', 150 the last class."""
    root = tmp_path / "ADEChallengeData2016"
    add(root, "training", 1, labels(0, 1, 1, 150))
    add(root, "training", 2, labels(3, 3, 2, 1))
    add(root, "validation", 1, labels(0, 1, 3, 150))
    return root


@pytest.fixture(scope="module")
def main() -> Callable[[list[str]], int]:
    spec = importlib.util.spec_from_file_location("prepare_data_for_ade20k", TOOL)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.main


def told(texts: list[str], *words: str) -> bool:
    return any(all(word in text for word in words) for text in texts)


def row(report: Report, label: str) -> list[str]:
    """The cells after ``label`` in the first line of the report that begins with it."""
    return next(line for line in report.lines if line.startswith(label))[len(label) :].split()


def digests(folder: Path) -> dict[str, str]:
    return {
        str(path): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in folder.rglob("*")
        if path.is_file()
    }


@pytest.mark.parametrize("files", ["decode", "header"])
def test_sound_data_have_no_problem_and_the_shares_are_right(root, files):
    before = digests(root)
    report = check_ade20k(root, files)
    assert report.problems == []
    assert row(report, "pairs of an image and a label image") == ["2", "1"]
    assert report.classes is not None
    train, val = report.classes.splits["training"], report.classes.splits["validation"]
    # columns of 8 x 12 pixels: wall (1) has three of the seven that are labelled, and so on
    assert train.pixels[[0, 1, 2, 149]].tolist() == [3 * 96, 96, 2 * 96, 96]
    assert train.shares()[0] == pytest.approx(100 * 3 / 7)
    assert (train.ignored, val.ignored) == (96, 96)
    assert train.images[[0, 2]].tolist() == [2, 1]
    assert row(report, NAMES[0]) == ["1", "42.86", "%", "2", "33.33", "%", "1"]
    assert row(report, NAMES[1]) == ["2", "14.29", "%", "1", "none", "0"]
    assert digests(root) == before


def test_other_counts_and_absent_classes_are_notes(root):
    report = check_ade20k(root)
    assert told(report.notes, "training has 2 pairs", "20,210")
    assert told(report.notes, "validation has 1 pairs", "2,000")
    assert told(report.notes, f"validation has no pixel of 1 class(es): {NAMES[1]}")
    assert told(report.notes, "146 class(es) have no pixel")


def test_without_looking_at_files_only_pairs_are_compared(root):
    cut(root / "annotations" / "training" / "ADE_train_00000001.png", 0.4)
    (root / "images" / "training" / "ADE_train_00000002.jpg").unlink()
    report = check_ade20k(root, "none")
    assert len(report.problems) == 1
    assert told(report.problems, "label images without an image: 1", "ADE_train_00000002.png")
    assert report.classes is None


def test_partners_are_missed_both_ways(root):
    (root / "annotations" / "training" / "ADE_train_00000001.png").unlink()
    (root / "images" / "validation" / "ADE_val_00000001.jpg").rename(
        root / "images" / "validation" / "other.jpg"
    )
    add(root, "validation", 2, labels(1, 2))
    report = check_ade20k(root)
    assert told(
        report.problems, "training: images without a label image: 1", "ADE_train_00000001.jpg"
    )
    assert told(report.problems, "validation: images without a label image: 1", "other.jpg")
    assert told(report.problems, "validation: label images without an image: 1", "ADE_val_00000001")
    assert row(report, "images without a label image") == ["1", "1"]


def test_files_that_are_cut_or_empty_are_named(root):
    cut(root / "annotations" / "training" / "ADE_train_00000001.png", 0.5)
    (root / "images" / "training" / "ADE_train_00000002.jpg").write_bytes(b"")
    report = check_ade20k(root)
    assert told(report.problems, "broken label images: 1", "ADE_train_00000001.png: cut short")
    assert told(report.problems, "broken images: 1", "ADE_train_00000002.jpg", "0 bytes")


def test_a_mask_of_another_size_is_named_with_both(root):
    labels(1, 2, 3).save(root / "annotations" / "training" / "ADE_train_00000001.png")
    report = check_ade20k(root)
    assert told(
        report.problems, "images of another size", "ADE_train_00000001.jpg", "32 x 12", "24 x 12"
    )


@pytest.mark.parametrize("turned", [True, False])
def test_exif_is_applied_before_sizes_are_compared(root, turned):
    """The mask may lie on the picture as it is seen, or (with a note) as it is stored."""
    exif = Image.Exif()
    exif[0x0112] = 6
    path = root / "images" / "training" / "ADE_train_00000001.jpg"
    shape = (32, 12) if turned else (12, 32)
    noisy((90, 120, 40), 0, shape).save(path, exif=exif)
    report = check_ade20k(root)
    assert report.problems == []
    assert told(report.notes, "that EXIF turns", path.name) is not turned


def test_a_value_above_150_is_an_error_with_its_pixels(root):
    add(root, "training", 3, labels(1, 151, 200))
    report = check_ade20k(root)
    assert told(report.problems, "what is no class: 1", "151 (96 pixels), 200 (96 pixels)", "0")
    assert report.classes.splits["training"].ignored == 3 * 96


def test_label_images_that_were_converted_to_indices_are_recognised(root):
    for split, number in (("training", 1), ("validation", 1)):
        add(root, split, number, labels(255, 0, 2, 149))
    report = check_ade20k(root)
    assert told(report.problems, "255 occurs", "annotations_detectron2")


def test_coloured_label_images_are_those_of_the_full_release(root):
    coloured = np.zeros((12, 32, 3), np.uint8)
    coloured[:, :16] = (30, 200, 7)
    path = root / "annotations" / "training" / "ADE_train_00000001.png"
    Image.fromarray(coloured).save(path)
    report = check_ade20k(root)
    assert told(report.problems, "1 label images are coloured", "full ADE20K")
    assert told(report.problems, "what is no class", path.name, "(30, 200, 7)")


def test_other_encodings_are_noted(root):
    path = root / "annotations" / "training" / "ADE_train_00000002.png"
    Image.fromarray(np.full((12, 32), 7, np.uint16)).save(path)
    report = check_ade20k(root)
    assert report.problems == []
    assert told(report.notes, "PNG, gray, 8 bits", "PNG, 16 or 32 bits (1)")
    assert report.classes.splits["training"].pixels[6] == 12 * 32


@pytest.mark.parametrize("gone", ["images/validation", "annotations/training", "annotations"])
def test_a_missing_folder_is_a_problem_and_the_rest_is_checked(root, gone):
    shutil.rmtree(root / gone)
    report = check_ade20k(root)
    assert told(report.problems, f"{root / gone}", "is missing")
    checked = [line for line in report.lines if "label images in" in line]
    assert len(checked) == (0 if gone == "annotations" else 1)


@pytest.mark.parametrize("name, other", [("training", "train"), ("validation", "val")])
def test_other_names_of_splits_are_named(root, name, other):
    (root / "images" / name).rename(root / "images" / other)
    report = check_ade20k(root)
    assert told(report.problems, f"images/{name} is missing", f"images/{other}", "rename")


def test_annotations_of_another_numbering_do_not_serve(root):
    (root / "annotations").rename(root / "annotations_detectron2")
    assert told(check_ade20k(root).problems, "annotations_detectron2 is numbered otherwise")


def test_one_level_too_high_and_too_low(root):
    with pytest.raises(UserError, match=rf"one level too high: {root} has images"):
        check_ade20k(root.parent)
    for inner in ("images", "images/training"):
        with pytest.raises(UserError, match=f"is a part of the benchmark; use {root} as ROOT"):
            check_ade20k(root / inner)


@pytest.mark.parametrize(
    "file",
    [
        "index_ade20k.mat",
        "images/training/a/abbey/ADE_train_00000970_seg.png",
        "images/ADE/training/urban/street/ADE_train_1_parts_1.png",
    ],
)
def test_the_full_release_is_recognised(tmp_path, file):
    root = tmp_path / "ADE20K"
    (root / file).parent.mkdir(parents=True)
    (root / file).touch()
    with pytest.raises(UserError, match="full ADE20K release"):
        check_ade20k(root)


def test_an_archive_that_is_not_unpacked_is_seen(tmp_path):
    archive = tmp_path / "ADEChallengeData2016.zip"
    with zipfile.ZipFile(archive, "w"):
        pass
    with pytest.raises(UserError, match="is there and not unpacked: python -m zipfile -e"):
        check_ade20k(tmp_path / "ADEChallengeData2016")
    with pytest.raises(UserError, match="not unpacked yet"):
        check_ade20k(tmp_path)
    with pytest.raises(UserError, match=r"is a file, not the folder.*unpack it"):
        check_ade20k(archive)


def test_an_empty_folder_is_told_where_the_data_are(tmp_path):
    with pytest.raises(UserError, match=r"holds: nothing.*sceneparsing\.csail\.mit\.edu"):
        check_ade20k(tmp_path)
    with pytest.raises(UserError, match=r"there is no .*nowhere.*Nothing is downloaded"):
        check_ade20k(tmp_path / "nowhere")
    with pytest.raises(UserError, match="files='all'"):
        check_ade20k(tmp_path, "all")


def test_images_in_both_splits_are_a_note(root):
    same = (root / "images" / "training" / "ADE_train_00000001.jpg").read_bytes()
    (root / "images" / "validation" / "ADE_val_00000001.jpg").write_bytes(same)
    report = check_ade20k(root)
    assert report.problems == []
    assert told(report.notes, "images also in training: 1", "ADE_val_00000001.jpg")


def test_the_tool_writes_table_and_picture_beside_and_never_into_the_data(
    root, tmp_path, monkeypatch, capsys, main
):
    monkeypatch.chdir(tmp_path)
    before = digests(root)
    assert main(["ade20k", "--check", str(root)]) == 0
    shown = capsys.readouterr().out
    assert shown.endswith("no problems found\n")
    out = tmp_path / "work_dirs" / "check_ade20k"
    assert sorted(path.name for path in out.iterdir()) == [
        "classes.csv",
        "classes.json",
        "classes.png",
    ]
    rows = (out / "classes.csv").read_text().splitlines()
    assert len(rows) == 151
    assert rows[1].startswith(f"0,{NAMES[0]},1,{3 * 96},42.857")
    document = json.loads((out / "classes.json").read_text())
    assert len(document["class_weight"]) == 150
    with Image.open(out / "classes.png") as picture:
        assert picture.width > 1000
    assert digests(root) == before
    for inside in (root, root / "images" / "new"):
        with pytest.raises(UserError, match=r"--out .* lies in the data"):
            main(["ade20k", "--check", str(root), "--out", str(inside)])
    assert not (root / "images" / "new").exists()


def test_the_tool_takes_the_folder_before_or_after_check(root, tmp_path, monkeypatch, main):
    monkeypatch.chdir(tmp_path)
    out = ["--out", str(tmp_path / "out"), "--files", "none"]
    assert main(["ade20k", str(root), "--check", *out]) == 0
    (tmp_path / "data").mkdir()
    root.rename(tmp_path / "data" / "ADEChallengeData2016")
    assert main(["ade20k", "--check", *out]) == 0
    next((tmp_path / "data").rglob("ADE_val_*.png")).unlink()
    assert main(["ade20k", "--check", *out]) == 1
    with pytest.raises(UserError, match="given twice"):
        main(["ade20k", "a", "--check", "b"])


def test_progress_has_an_estimate(monkeypatch):
    monkeypatch.setattr(progress, "_FIRST_LINE_AFTER", 0)
    lines: list[str] = []
    monkeypatch.setattr(progress, "print_log", lambda text, logger: lines.append(text))
    monkeypatch.setattr(progress, "_BLOCK", 2)
    assert list(progress.looked_at(5, lambda i: i * i, "label images")) == [
        (0, 0), (1, 1), (2, 4), (3, 9), (4, 16)
    ]  # fmt: skip
    assert lines[0].startswith("looked at 1 of 5 label images, about ")


def test_what_has_not_begun_is_dropped_when_the_caller_stops(monkeypatch):
    begun: list[int] = []

    def look(index: int) -> int:
        begun.append(index)
        if index == 0:
            return 0
        raise KeyboardInterrupt

    monkeypatch.setattr(progress.os, "cpu_count", lambda: 1)
    with pytest.raises(KeyboardInterrupt):
        list(progress.looked_at(400, look))
    assert len(begun) < 400
