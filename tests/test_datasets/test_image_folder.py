"""Class folders on disk: layouts, classes, bad files, and what an item is."""

from __future__ import annotations

import hashlib
import itertools
import logging
import os
import pickle
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from picture_sets import cut, noisy, write_classes
from PIL import Image
from torch.utils.data import DataLoader, default_collate

from polaformer.datasets import ImageFolder, compare_classes, progress
from polaformer.errors import UserError
from polaformer.registry import DATASETS


def digest(root: Path) -> str:
    """Everything below ``root``: names, contents, times."""
    text = []
    for path in sorted(root.rglob("*")):
        status = path.lstat()
        body = path.read_bytes() if path.is_file() else b""
        text.append(f"{path} {status.st_mtime_ns} {hashlib.sha256(body).hexdigest()}")
    return "\n".join(text)


@pytest.fixture
def log(monkeypatch) -> list[str]:
    """What the data set logs, whichever logger is current."""
    lines: list[str] = []

    def note(message, logger=None, level=logging.INFO):
        lines.append(str(message))

    monkeypatch.setattr("polaformer.datasets.image_folder.print_log", note)
    return lines


def awkward(root: Path) -> Path:
    """The colour folders with a cut JPEG, a dangling link, gray, CMYK and an upper-case ending."""
    write_classes(root)
    cut(root / "red" / "0.jpg")
    (root / "green" / "9.jpg").symlink_to(root / "nowhere.jpg")
    noisy((120, 120, 120), 1).convert("L").save(root / "blue" / "gray.png")
    noisy((200, 60, 90), 2).convert("CMYK").save(root / "red" / "cmyk.jpg", quality=95)
    noisy((40, 190, 50), 3).save(root / "green" / "A.JPG", quality=95)
    return root


def test_an_item_is_a_uint8_tensor_a_label_and_an_index(colour_folders):
    data = DATASETS.build(dict(type="polaformer.ImageFolder", root=str(colour_folders)))
    assert len(data) == 12
    assert data.classes == ("blue", "green", "red")
    assert data.metainfo == {"classes": data.classes}
    item = data[5]
    assert item["inputs"].dtype == torch.uint8
    assert item["inputs"].shape == (3, 64, 64)
    assert (item["labels"], item["indices"]) == (1, 5)
    assert data[-1]["indices"] == 11
    assert data.samples[5] == (str(colour_folders / "green" / "1.jpg"), 1)
    assert [label for _, label in data.samples] == [0] * 4 + [1] * 4 + [2] * 4
    assert data.summary() == "12 images in 3 classes, 0 skipped"
    with pytest.raises(IndexError):
        data[12]


def test_batches_collate_to_what_the_model_takes(colour_folders):
    data = ImageFolder(colour_folders)
    batch = next(iter(DataLoader(data, batch_size=5, collate_fn=default_collate)))
    assert batch["inputs"].shape == (5, 3, 64, 64)
    assert batch["labels"].dtype == batch["indices"].dtype == torch.int64


def test_stop_names_every_bad_file_before_training(tmp_path):
    root = awkward(tmp_path / "set")
    before = digest(root)
    with pytest.raises(UserError) as caught:
        ImageFolder(root)
    text = str(caught.value)
    assert "2 of 16 images are bad" in text
    assert f"{root}/red/0.jpg: cut short" in text
    assert f"{root}/green/9.jpg: the link points to nothing" in text
    assert "gray.png" not in text
    assert digest(root) == before


def test_skip_trains_on_the_rest_and_says_so(tmp_path, log):
    root = awkward(tmp_path / "set")
    before = digest(root)
    data = ImageFolder(root, on_error="skip")
    assert len(data) == 14
    assert [name for name, _ in data.skipped] == ["green/9.jpg", "red/0.jpg"]
    assert data.summary() == "14 images in 3 classes, 2 skipped"
    told = [line for line in log if "2 skipped" in line]
    assert len(told) == 1
    assert "green/9.jpg" in told[0]
    assert "red/0.jpg" in told[0]
    assert digest(root) == before
    names = list(data.names)
    twins = {"blue/gray.png": ((120,) * 3, 1), "red/cmyk.jpg": ((200, 60, 90), 2)}
    for name, (colour, seed) in twins.items():
        got = data[names.index(name)]["inputs"].float().mean((1, 2))
        twin = noisy(colour, seed)
        twin = twin.convert("L").convert("RGB") if "gray" in name else twin
        np.testing.assert_allclose(got, np.asarray(twin, float).mean((0, 1)), atol=3)
    assert "green/A.JPG" in names


def test_zero_bytes_text_and_a_listed_file_that_is_missing(tmp_path, colour_folders):
    (colour_folders / "red" / "0.jpg").write_bytes(b"")
    (colour_folders / "red" / "1.jpg").write_text("no picture")
    rows = ["red/0.jpg red", "red/1.jpg red", "red/2.jpg red", "red/7.jpg red", "blue/0.jpg blue"]
    listed = tmp_path / "list.txt"
    listed.write_text("# a list\n\n" + "\n".join(rows) + "\n")
    with pytest.raises(UserError, match="3 of 5 images are bad") as caught:
        ImageFolder(colour_folders, ann_file=listed)
    for part in ("0 bytes", "no image that PIL knows", "red/7.jpg: the file is missing"):
        assert part in str(caught.value)
    data = ImageFolder(colour_folders, ann_file=listed, on_error="skip")
    assert [
        (name, label) for name, label in zip(data.names, data.labels.tolist(), strict=True)
    ] == [
        ("red/2.jpg", 1),
        ("blue/0.jpg", 0),
    ]


def test_header_check_finds_cut_files_and_none_looks_at_nothing(tmp_path):
    root = awkward(tmp_path / "set")
    with pytest.raises(UserError, match="2 of 16"):
        ImageFolder(root, check="header")
    assert len(ImageFolder(root, check=None)) == 16
    data = ImageFolder(root, check="none")
    assert len(data) == 16
    assert [line.split(":")[0] for line in data.check()] == ["green/9.jpg", "red/0.jpg"]
    assert data.check(decode=True) == data.check()


def test_a_file_that_breaks_later_stops_or_is_replaced_and_told_once(colour_folders, log):
    stop = ImageFolder(colour_folders)
    skip = ImageFolder(colour_folders, on_error="skip")
    cut(colour_folders / "blue" / "3.jpg")
    with pytest.raises(UserError, match=r"blue/3\.jpg: cut short"):
        stop[3]
    log.clear()
    first, second = skip[3], skip[3]
    assert torch.equal(first["inputs"], skip[4]["inputs"])
    assert torch.equal(first["inputs"], second["inputs"])
    assert (first["labels"], first["indices"]) == (1, 3)
    assert len(log) == 1
    assert "blue/3.jpg" in log[0]


def test_out_of_a_data_worker_comes_one_sentence(colour_folders):
    data = ImageFolder(colour_folders)
    cut(colour_folders / "blue" / "1.jpg")
    with pytest.raises(UserError) as caught:
        list(DataLoader(data, batch_size=2, num_workers=1, multiprocessing_context="fork"))
    assert str(caught.value).startswith(f"bad image {colour_folders / 'blue' / '1.jpg'}: cut short")
    assert "\n" not in str(caught.value)


def test_nothing_readable_is_an_error_even_with_skip(tmp_path):
    root = write_classes(tmp_path / "set", per_class=1)
    for path in root.rglob("*.jpg"):
        path.write_bytes(b"")
    with pytest.raises(UserError, match="not a single one of 3"):
        ImageFolder(root, on_error="skip")


def test_hidden_files_are_silent_and_others_are_reported(colour_folders, log):
    for name in ("._0.jpg", ".DS_Store", "Thumbs.db"):
        (colour_folders / "red" / name).write_bytes(b"x")
    (colour_folders / "__MACOSX" / "red").mkdir(parents=True)
    (colour_folders / "red" / "notes.txt").write_text("x")
    (colour_folders / "blue" / "labels.csv").write_text("x")
    data = ImageFolder(colour_folders)
    assert len(data) == 12
    assert data.skipped == []
    assert dict(data.ignored) == {
        "red/notes.txt": "no image by its name",
        "blue/labels.csv": "no image by its name",
    }
    assert len(log) == 1
    assert "notes.txt" in log[0]
    assert ".DS_Store" not in log[0]


def test_a_check_that_takes_long_says_how_far_it_is(colour_folders, monkeypatch):
    lines: list[str] = []
    seconds = itertools.count(step=0.5)  # half a second per look at the clock
    clock = SimpleNamespace(monotonic=lambda: next(seconds))
    monkeypatch.setattr(progress, "time", clock)
    monkeypatch.setattr(progress, "print_log", lambda text, logger: lines.append(text))
    ImageFolder(colour_folders)
    assert lines == ["looked at 4 of 12 images, about 6 s left"]


def test_a_listing_without_a_check_says_nothing(colour_folders, log):
    (colour_folders / "red" / "notes.txt").write_text("x")
    assert ImageFolder(colour_folders, check="none").ignored
    assert log == []


def test_links_to_files_and_folders_and_a_link_upwards(tmp_path, colour_folders):
    root = tmp_path / "linked"
    root.mkdir()
    (root / "red").symlink_to(colour_folders / "red")
    (root / "blue").mkdir()
    (root / "blue" / "a.jpg").symlink_to(colour_folders / "blue" / "0.jpg")
    (root / "blue" / "up").symlink_to(root)
    data = ImageFolder(root)
    assert list(data.names) == ["blue/a.jpg", *(f"red/{i}.jpg" for i in range(4))]
    assert ("blue/up", "links back to a folder above it") in data.ignored


def test_folders_inside_a_class_belong_to_it(colour_folders):
    (colour_folders / "red" / "more").mkdir()
    noisy((200, 0, 0), 1).save(colour_folders / "red" / "more" / "x.PNG")
    data = ImageFolder(colour_folders)
    assert data.samples[-1] == (str(colour_folders / "red" / "more" / "x.PNG"), 2)


def test_order_does_not_depend_on_the_file_system(colour_folders, monkeypatch):
    expected = list(ImageFolder(colour_folders).names)
    scandir = os.scandir

    class Reversed:
        def __init__(self, path):
            self.entries = scandir(path)

        def __enter__(self):
            return iter(sorted(self.entries, key=lambda entry: entry.name, reverse=True))

        def __exit__(self, *_):
            self.entries.close()

    monkeypatch.setattr(os, "scandir", Reversed)
    assert list(ImageFolder(colour_folders).names) == expected


def test_classes_restrict_and_order(colour_folders):
    data = ImageFolder(colour_folders, classes=["red", "blue"])
    assert data.classes == ("red", "blue")
    assert data.class_counts() == {"red": 4, "blue": 4}
    assert sorted(set(data.labels.tolist())) == [0, 1]


def test_unknown_classes_are_named_with_the_nearest_folder(colour_folders):
    with pytest.raises(UserError) as caught:
        ImageFolder(colour_folders, classes=["Red", "blue", "green"])
    text = str(caught.value)
    assert "'Red' (did you mean 'red'?)" in text
    assert "folders not asked for: red" in text
    with pytest.raises(UserError, match="more than once"):
        ImageFolder(colour_folders, classes=["red", "red"])
    with pytest.raises(UserError, match="not the string"):
        ImageFolder(colour_folders, classes="red")


def test_wrong_layouts_are_explained(tmp_path):
    write_classes(tmp_path / "data" / "flowers" / "train")
    write_classes(tmp_path / "data" / "flowers" / "val", per_class=1)
    data = tmp_path / "data"
    cases = [
        (data / "flowers", None, "give split='train'"),
        (data, "train", f"but {data / 'flowers'} has one"),
        (data / "flowers", "vol", "did you mean 'val'"),
        (data / "flowers" / "train", "train", f"use {data / 'flowers'} as root"),
        (data / "flowers" / "train" / "red", None, "directly in it"),
        (data / "flower", "train", "there is no"),
        (tmp_path / "digits", "train", "prepare_data.py digits"),
    ]
    for root, split, words in cases:
        with pytest.raises(UserError) as caught:
            ImageFolder(root, split)
        assert words in str(caught.value)
    (data / "flowers" / "train").rename(tmp_path / "data" / "flowers" / "colours")
    (data / "flowers" / "val").rename(tmp_path / "val")
    with pytest.raises(UserError, match=r"one level too high, use .*flowers/colours"):
        ImageFolder(data / "flowers")
    (tmp_path / "void").mkdir()
    with pytest.raises(UserError, match="holds no images"):
        ImageFolder(tmp_path / "void")
    (tmp_path / "file.png").write_bytes(b"x")
    with pytest.raises(UserError, match="neither a folder nor"):
        ImageFolder(tmp_path / "file.png")


def test_empty_class_folders_are_named(colour_folders):
    (colour_folders / "amber").mkdir()
    (colour_folders / "violet").mkdir()
    with pytest.raises(UserError, match=r"2 class folder\(s\) without an image: amber, violet"):
        ImageFolder(colour_folders)
    data = ImageFolder(colour_folders, allow_empty=True)
    assert data.class_counts()["amber"] == 0
    assert data.classes[0] == "amber"


def test_list_with_blanks_in_names_tabs_and_numbers(tmp_path, colour_folders):
    noisy((1, 2, 3), 1).save(colour_folders / "red" / "two words.png")
    listed = colour_folders / "list.txt"
    listed.write_text("red/two words.png 1\nblue/0.jpg 0\n")
    assert ImageFolder(colour_folders, ann_file="list.txt").labels.tolist() == [1, 0]
    listed.write_text("red/two words.png\tdark red\nblue/0.jpg\tblue\n")
    data = ImageFolder(colour_folders, ann_file=listed)
    assert data.classes == ("blue", "dark red")
    assert data.labels.tolist() == [1, 0]


@pytest.mark.parametrize(
    "text, words",
    [
        ("red/0.jpg\n", "line 1: 'red/0.jpg' names no class"),
        ("red/0.jpg red\nblue/0.jpg blau\n", "line 2: class 'blau' is none of the 3 classes"),
        ("red/0.jpg 3\n", "count from 0 to 2"),
        ("red/0.jpg red\nred/0.jpg blue\n", "two different classes"),
        ("\n# nothing\n", "lists no image"),
    ],
)
def test_mistakes_in_a_list(tmp_path, colour_folders, text, words):
    listed = tmp_path / "list.txt"
    listed.write_text(text)
    with pytest.raises(UserError) as caught:
        ImageFolder(colour_folders, ann_file=listed, classes=["blue", "green", "red"])
    assert words in str(caught.value)


def test_fingerprint_follows_content_and_not_the_place(tmp_path, colour_folders):
    first = ImageFolder(colour_folders).fingerprint()
    moved = tmp_path / "elsewhere"
    colour_folders.rename(moved)
    assert ImageFolder(moved).fingerprint() == first
    assert ImageFolder(moved, classes=["red", "green", "blue"]).fingerprint() != first
    noisy((0, 0, 0), 7, (70, 70)).save(moved / "red" / "0.jpg")
    assert ImageFolder(moved).fingerprint() != first


def test_classes_of_train_and_val_are_compared(colour_folders):
    train = ImageFolder(colour_folders)
    assert compare_classes(train, train.classes) == []
    (unknown, missing) = compare_classes(train, ["blue", "green", "Red"])
    assert "that train has not: Red (did you mean 'red'?)" in unknown
    assert missing == "val lacks 1 class(es) of train: red"
    (order,) = compare_classes(train, ["blue", "red", "green"], "test")
    assert "position 1: 'green' in train, 'red' in test" in order


def test_wrong_options_are_named(colour_folders):
    with pytest.raises(UserError, match="on_error='ignore'"):
        ImageFolder(colour_folders, on_error="ignore")
    with pytest.raises(UserError, match="did you mean 'header'"):
        ImageFolder(colour_folders, check="headers")
    with pytest.raises(UserError, match="alpha="):
        ImageFolder(colour_folders, alpha="grey")
    with pytest.raises(UserError, match="transforms='resize'"):
        ImageFolder(colour_folders, transforms="resize")


def test_transforms_must_end_in_uint8(colour_folders):
    data = ImageFolder(colour_folders, transforms=lambda image: torch.zeros(3, 8, 8))
    with pytest.raises(UserError, match="float32"):
        data[0]


def test_a_decompression_bomb_is_named(colour_folders, monkeypatch):
    Image.new("1", (3000, 3000)).save(colour_folders / "red" / "huge.png")
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 1_000_000)
    with pytest.raises(UserError, match=r"huge\.png: too many pixels"):
        ImageFolder(colour_folders)


@pytest.mark.skipif(os.name == "nt", reason="POSIX file names")
def test_names_that_are_no_utf8(colour_folders):
    noisy((1, 2, 3), 1).save(colour_folders / "red" / "ok.png")
    os.rename(
        colour_folders / "red" / "ok.png", os.fsencode(colour_folders / "red") + b"/\xff\xfe.png"
    )
    data = ImageFolder(colour_folders)
    assert len(data) == 13
    assert pickle.loads(pickle.dumps(data)).fingerprint() == data.fingerprint()
    assert data[12]["labels"] == 2


def test_a_named_pipe_does_not_block(colour_folders):
    if not hasattr(os, "mkfifo"):
        pytest.skip("no named pipes here")
    os.mkfifo(colour_folders / "red" / "pipe.jpg")
    with pytest.raises(UserError, match="not a regular file"):
        ImageFolder(colour_folders)
