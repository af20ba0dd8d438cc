"""What the check of a user's own label images finds and proposes, on small folders."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from picture_sets import cut, noisy
from PIL import Image

from polaformer.datasets import SegmentationDataset
from polaformer.datasets.class_sets import class_set, voc_color
from polaformer.datasets.prepare.label_colors import read_label_colors
from polaformer.datasets.prepare.mask_advice import propose
from polaformer.datasets.prepare.mask_look import RawCount
from polaformer.datasets.prepare.mask_report import MaskReport
from polaformer.datasets.prepare.masks_check import MaskOptions, check_masks
from polaformer.errors import UserError

TOOL = Path(__file__).resolve().parents[2] / "tools" / "prepare_data.py"
ROAD, CAR, SKY = (128, 64, 128), (0, 0, 142), (70, 130, 180)


def columns(*values: object) -> np.ndarray:
    """A column of 8 pixels for each value or colour, 12 pixels high."""
    return np.array([values], np.uint8).repeat(8, axis=1).repeat(12, axis=0)


def write(root: Path, split: str, masks: dict[str, np.ndarray | Image.Image]) -> list[str]:
    """Images and label images of one split below ``root``; their two folders."""
    folders = [root / split / name for name in ("images", "masks")]
    for folder in folders:
        folder.mkdir(parents=True, exist_ok=True)
    for number, (name, mask) in enumerate(masks.items(), start=100 * len(split)):
        image = mask if isinstance(mask, Image.Image) else Image.fromarray(mask)
        noisy((90, 120, 40), number, (image.height, image.width)).save(folders[0] / f"{name}.png")
        image.save(folders[1] / f"{name}.png")
    return [str(folder) for folder in folders]


def told(texts: list[str], *words: str) -> bool:
    return any(all(word in text for word in words) for text in texts)


def config_of(report: MaskReport) -> dict:
    """The three printed statements, executed."""
    first = next(i for i, line in enumerate(report.lines) if line.startswith("classes = "))
    scope: dict = {}
    exec("\n".join(report.lines[first : first + 3]), {}, scope)
    return scope


def built(report: MaskReport, split: str = "train") -> SegmentationDataset:
    """The data set that the printed lines mean."""
    scope = config_of(report)
    return SegmentationDataset(
        classes=scope["classes"], **scope[f"{split}_dataloader"]["dataset"], check="decode"
    )


@pytest.fixture(scope="module")
def main() -> Callable[[list[str]], int]:
    spec = importlib.util.spec_from_file_location("prepare_data_for_masks", TOOL)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.main


@pytest.mark.parametrize(
    "values, names, options",
    [
        ((0, 1, 2), ("class_0", "class_1", "class_2"), {}),
        ((0, 1, 2, 255), ("class_0", "class_1", "class_2"), {}),
        ((0, 255), ("background", "object"), {"label_values": (0, 255)}),
        ((0, 1), ("background", "object"), {}),
        ((1, 2), ("class_0", "class_1"), {"label_values": (1, 2)}),
        ((0, 3, 7), ("class_0", "class_1", "class_2"), {"label_values": (0, 3, 7)}),
        ((0, 85, 170, 255), tuple(f"class_{i}" for i in range(4)),
         {"label_values": (0, 85, 170, 255)}),
        ((0, 3, 4, 255), ("class_0", "class_1", "class_2"), {"label_values": (0, 3, 4)}),
    ],
)  # fmt: skip
def test_the_proposed_lines_make_a_data_set_that_reads_the_masks(tmp_path, values, names, options):
    folders = write(tmp_path, "train", {"a": columns(*values), "b": columns(*values[::-1])})
    folders += write(tmp_path, "val", {"c": columns(*values)})
    report = check_masks(folders)
    assert report.problems == []
    scope = config_of(report)
    assert scope["classes"] == names
    data = scope["train_dataloader"]["dataset"]
    assert {key: data[key] for key in options} == options
    assert data.keys() == {"data_root", "data_prefix", *options}
    assert data["data_root"] == str(tmp_path)
    dataset = built(report)
    classes = [value for value in values if value in options.get("label_values", values[:-1] if
               values[-1] == 255 else values)]  # fmt: skip
    expected = [classes.index(value) if value in classes else 255 for value in values]
    assert dataset.read_mask(0)[0, ::8].tolist() == expected
    assert len(built(report, "val")) == 1


def test_shares_and_weights_are_those_of_a_hand_count(tmp_path):
    """Class 2 is in one of two files: 8 of 40 columns there; 0 and 1 in both: 64 columns."""
    folders = write(tmp_path, "train", {"a": columns(0, 0, 0, 1), "b": columns(0, 1, 1, 2, 255)})
    report = check_masks(folders)
    assert report.classes is not None
    found = report.classes.splits["files"]
    assert found.pixels.tolist() == [4 * 96, 3 * 96, 96]
    assert found.shares().tolist() == pytest.approx([50, 37.5, 12.5])
    assert found.ignored == 96
    # freq = 4/9, 3/9, 1/5; the median is 1/3
    assert report.classes.weights().tolist() == pytest.approx([3 / 4, 1, 5 / 3])
    assert told(report.lines, "model = dict(decode_head=", "class_weight=[0.75, 1, 1.667]")


def test_classes_given_count_the_same_and_are_in_the_lines(tmp_path):
    folders = write(tmp_path, "train", {"a": columns(0, 0, 0, 1), "b": columns(0, 1, 1, 2, 255)})
    report = check_masks(folders, MaskOptions(classes=("ground", "road", "car")))
    assert report.problems == []
    assert report.classes is not None
    assert report.classes.weights().tolist() == pytest.approx([3 / 4, 1, 5 / 3])
    assert config_of(report)["classes"] == ("ground", "road", "car")
    assert told(report.lines, "# your validation folders")


def test_the_validation_folders_are_guessed_where_they_are(tmp_path):
    folders = write(tmp_path, "train", {"a": columns(0, 1)})
    write(tmp_path, "val", {"b": columns(0, 1)})
    scope = config_of(check_masks(folders))
    data = scope["val_dataloader"]["dataset"]
    assert data["data_root"] == str(tmp_path)
    assert data["data_prefix"] == {"img_path": "val/images", "seg_map_path": "val/masks"}


@pytest.mark.parametrize(
    "options, words",
    [
        (MaskOptions(classes=("a", "b")), ("what is no class", "a.png", "2 (96 pixels)")),
        (
            MaskOptions(classes=("a", "b", "c"), reduce_zero_label=True),
            ("no class", "4 (96 pixels)"),
        ),
        (MaskOptions(classes=("a", "b", "c"), label_values=(0, 1, 7)), ("no class", "2 (96")),
    ],
)
def test_values_that_do_not_fit_the_classes_are_named(tmp_path, options, words):
    folders = write(tmp_path, "train", {"a": columns(0, 1, 2), "b": columns(0, 0, 4)})
    report = check_masks(folders, options)
    assert told(report.problems, *words)
    assert told(report.problems, "values that are no class: ", "4: 96 pixels", "allowed: ")
    assert not told(report.lines, "class_weight")


def test_one_class_too_few_is_explained(tmp_path):
    folders = write(tmp_path, "train", {"a": columns(0, 1, 2, 3)})
    report = check_masks(folders, MaskOptions(classes=("a", "b", "c")))
    assert told(report.notes, "values reach from 0 to 3", "reduce_zero_label=True")


def test_zero_is_reduced_once(tmp_path):
    folders = write(tmp_path, "train", {"a": columns(0, 1, 1, 2, 3, 255)})
    report = check_masks(folders, MaskOptions(classes=("a", "b", "c"), reduce_zero_label=True))
    assert report.problems == []
    assert report.classes is not None
    assert report.classes.splits["files"].pixels.tolist() == [2 * 96, 96, 96]
    assert report.classes.splits["files"].ignored == 2 * 96
    assert list(report.classes.raw) == ["1", "2", "3"]
    assert built(report).read_mask(0)[0, ::8].tolist() == [255, 0, 0, 1, 2, 255]


def test_binary_masks_with_two_names_are_explained(tmp_path):
    folders = write(tmp_path, "train", {"a": columns(0, 255)})
    report = check_masks(folders, MaskOptions(classes=("ground", "road")))
    assert told(report.problems, "there is nothing of 'road'", "label_values=(0, 255)")
    mended = check_masks(folders, MaskOptions(classes=("ground", "road"), label_values=(0, 255)))
    assert mended.problems == []
    assert built(mended).read_mask(0)[0, ::8].tolist() == [0, 1]


@pytest.mark.parametrize(
    "values, words",
    [((255,), "is 255 (ignored): nothing to learn"), ((0, 255), "nothing of the other classes")],
)
def test_masks_that_teach_nothing(tmp_path, values, words):
    folders = write(tmp_path, "train", {"a": columns(*values)})
    folders += write(tmp_path, "val", {"b": columns(0, 1, 2)})
    report = check_masks(folders, MaskOptions(classes=("a", "b", "c")))
    assert told(report.problems, f"train: {'every' if values == (255,) else 'the'}", words)
    folders = [*folders[2:], *folders[:2]]
    assert not check_masks(folders, MaskOptions(classes=("a", "b", "c"))).problems


def test_double_names_are_told_apart(tmp_path):
    folders = write(tmp_path, "train", {"a": columns(0, 1), "b": columns(0, 1)})
    noisy(ROAD, 1, (12, 16)).save(Path(folders[0]) / "a.jpg")
    for files in ("none", "decode"):
        report = check_masks(folders, files=files)
        assert told(report.problems, "double names", "the same name as a.png")
        assert not told(report.problems, "not there")


def test_turned_pictures_that_sizes_do_not_settle_are_told(tmp_path):
    folders = write(tmp_path, "train", {"a": columns(0, 1), "b": columns(0, 1)})
    exif = Image.Exif()
    exif[0x0112] = 3
    noisy(ROAD, 1, (12, 16)).save(Path(folders[0]) / "b.png", exif=exif.tobytes())
    for files in ("decode", "header"):
        report = check_masks(folders, files=files)
        assert report.problems == []
        assert told(report.notes, "turned by their EXIF orientation", "exif=False): 1 (b.png)")


def test_a_border_of_zero_is_recognised(tmp_path):
    mask = np.ones((24, 32), np.uint8)
    mask[:, 16:] = 2
    mask[:, 15:17] = 0
    report = check_masks(write(tmp_path, "train", {"a": mask}))
    assert told(report.notes, "0 forms thin lines", "reduce_zero_label=True")
    wide = mask.copy()
    wide[:, 8:24] = 0
    report = check_masks(write(tmp_path, "wide", {"a": wide}))
    assert not told(report.notes, "thin lines")
    assert told(report.notes, "0 is taken for a class of its own")


def test_colours_are_found_and_proposed(tmp_path):
    folders = write(
        tmp_path, "train", {"a": columns(ROAD, ROAD, CAR), "b": columns(ROAD, SKY, CAR, ROAD)}
    )
    report = check_masks(folders)
    assert report.problems == []
    data = config_of(report)["train_dataloader"]["dataset"]
    assert data["label_colors"][0] == ROAD
    assert set(data["label_colors"]) == {ROAD, CAR, SKY}
    assert built(report).read_mask(0)[0, ::8].tolist() == [0, 0, 1]


def test_black_files_among_coloured_ones_are_black(tmp_path):
    black = np.zeros((12, 16, 3), np.uint8)
    folders = write(tmp_path, "train", {"a": black, "b": columns((0, 0, 0), ROAD)})
    report = check_masks(folders)
    assert report.problems == []
    assert config_of(report)["classes"] == ("background", "object")
    assert len(built(report)) == 2


def test_gray_files_among_coloured_ones_are_a_problem(tmp_path):
    folders = write(tmp_path, "train", {"a": columns(0, 1, 2), "b": columns((0, 0, 0), ROAD)})
    assert told(check_masks(folders).problems, "gray label images among coloured ones: 1 (a.png)")


def test_colours_of_voc_come_in_its_order(tmp_path):
    mask = columns(voc_color(2), voc_color(2), voc_color(1), voc_color(0))
    report = check_masks(write(tmp_path, "train", {"a": mask}))
    data = config_of(report)["train_dataloader"]["dataset"]
    assert data["label_colors"] == [voc_color(0), voc_color(1), voc_color(2)]
    assert told(report.notes, "Pascal VOC's map at 0, 1, 2")


def test_the_indices_of_a_palette_count_not_its_colours(tmp_path):
    image = Image.fromarray(columns(0, 1, 2))
    image = image.convert("P")
    image.putdata(columns(0, 1, 2).ravel().tolist())
    image.putpalette([0, 0, 0, 200, 10, 10, 10, 200, 10])
    report = check_masks(write(tmp_path, "train", {"a": image}))
    assert report.problems == []
    assert told(report.lines, "label images as PNG, palette")
    assert "label_colors" not in config_of(report)["train_dataloader"]["dataset"]
    assert built(report).read_mask(0)[0, ::8].tolist() == [0, 1, 2]


def test_a_file_of_colours_gives_names_and_unknown_colours_are_errors(tmp_path):
    table = tmp_path / "colors.txt"
    table.write_text("# red green blue name\n128 64 128\troad\n0, 0, 142, small car\n")
    folders = write(tmp_path, "train", {"a": columns(ROAD, CAR, CAR)})
    report = check_masks(folders, MaskOptions(label_colors=str(table)))
    assert report.problems == []
    assert config_of(report)["classes"] == ("road", "small car")
    assert built(report).read_mask(0)[0, ::8].tolist() == [0, 1, 1]
    folders = write(tmp_path, "more", {"a": columns(ROAD, SKY)})
    report = check_masks(folders, MaskOptions(label_colors=str(table)))
    assert told(report.problems, "not in the table", str(SKY), "96 pixels")


@pytest.mark.parametrize(
    "text, words",
    [
        ("", "no line with a colour"),
        ("1 2\n", "line 1: '1 2' is not"),
        ("1 2 3\n\n256 0 0\n", "line 3"),
        ("1 2 3 road\n4 5 6\n", "colour 2 has no name"),
        ("1 2 3 road\n4 5 6 road\n", "more than once"),
    ],
)
def test_a_wrong_file_of_colours_names_the_line(tmp_path, text, words):
    path = tmp_path / "colors.txt"
    path.write_text(text)
    with pytest.raises(UserError, match=words):
        read_label_colors(str(path))


def test_names_may_stand_before_the_colours(tmp_path):
    path = tmp_path / "colors.csv"
    path.write_text("road;128;64;128\ncar 2;0;0;142\n")
    assert read_label_colors(str(path)) == ((ROAD, CAR), ("road", "car 2"))
    path.write_bytes(b"\xff\xfe1")
    with pytest.raises(UserError, match="not UTF-8"):
        read_label_colors(str(path))
    with pytest.raises(UserError, match=r"cannot read .*none"):
        read_label_colors(str(tmp_path / "none"))


def test_masks_saved_as_jpeg_are_recognised(tmp_path):
    folders = write(tmp_path, "train", {"a": columns(ROAD, CAR)})
    mask = np.zeros((96, 96, 3), np.uint8)
    for i, color in enumerate((ROAD, CAR, SKY)):
        mask[20 * i : 20 * i + 30, 10 * i : 70] = color
    os.remove(Path(folders[1]) / "a.png")
    Image.fromarray(mask).save(Path(folders[1]) / "a.jpg", quality=60)
    noisy(ROAD, 0, (96, 96)).save(Path(folders[0]) / "a.png")
    report = check_masks(folders)
    assert told(report.problems, "colours, and only", "JPEG", "ignore_colors='rest'")
    assert told(report.notes, "changes values on saving", "a.jpg")


def test_blended_values_and_instances_are_no_classes():
    many = {value: RawCount(10, 2, 1000) for value in range(200)} | {0: RawCount(90_000, 2, 1000)}
    assert told(propose(many, 2, 2 * 150, False).problems, "look blended")
    assert propose(many, 2, 2 * 9, False).problems == []
    objects = {value: RawCount(10, 1, 1000) for value in range(1000)}
    assert told(propose(objects, 5, 50, False).problems, "1,000 different values", "instances")
    assert told(propose({255: RawCount(9, 1, 9)}, 1, 1, False).problems, "nothing to learn")
    assert told(propose({-1: RawCount(9, 1, 9)}, 1, 1, False).problems, "negative values")
    assert told(propose({}, 0, 0, False).problems, "not a single label image")


def test_photographs_in_place_of_masks_are_seen(tmp_path):
    folders = write(tmp_path, "train", {"a": columns(0, 1)})
    noisy(ROAD, 1, (128, 128)).save(Path(folders[1]) / "a.png")
    noisy(ROAD, 1, (128, 128)).save(Path(folders[0]) / "a.png")
    report = check_masks(folders)
    assert told(report.problems, "look like photographs", "swapped", "a.png")
    folders = write(tmp_path, "more", {"a": columns(0, 1), "b": columns(0, 1, 2)})
    noisy(ROAD, 1, (128, 128)).save(Path(folders[1]) / "a.png")
    report = check_masks(folders, MaskOptions(classes=("x", "y", "z")))
    assert told(report.problems, "photographs", "a.png")
    assert report.classes is not None
    assert report.classes.splits["files"].pixels.tolist() == [96, 96, 96]


def test_suffixes_and_subfolders_pair_and_are_in_the_lines(tmp_path):
    root = tmp_path / "city"
    for folder, name, what in (
        ("images", "x_leftImg8bit.png", noisy(ROAD, 0, (12, 16))),
        ("fine", "x_gtFine_labelIds.png", Image.fromarray(columns(7, 0))),
    ):
        (root / folder / "ulm").mkdir(parents=True)
        what.save(root / folder / "ulm" / name)
    folders = [str(root / "images"), str(root / "fine")]
    report = check_masks(folders)
    assert told(report.problems, "not a single image has a label image")
    assert told(report.problems, "try img_suffix=", "leftImg8bit.png'", "labelIds.png'")
    options = MaskOptions(
        class_set="cityscapes", img_suffix="_leftImg8bit.png", seg_map_suffix="_labelIds.png"
    )
    assert told(check_masks(folders, options).problems, "not a single image")
    options.seg_map_suffix = "_gtFine_labelIds.png"
    report = check_masks(folders, options)
    assert report.problems == []
    scope = config_of(report)
    assert scope["classes"] == "cityscapes"
    dataset = built(report)
    assert dataset.classes == class_set("cityscapes").classes
    assert dataset.read_mask(0)[0, ::8].tolist() == [0, 255]


def test_lists_choose_the_images(tmp_path):
    folders = write(tmp_path, "train", {name: columns(0, 1) for name in "abc"})
    os.remove(Path(folders[1]) / "c.png")
    assert told(check_masks(folders).problems, "without a label image: 1", "c.png")
    listed = tmp_path / "list.txt"
    listed.write_text("a\nb\n")
    report = check_masks(folders, MaskOptions(ann_files=[str(listed)]))
    assert report.problems == []
    assert len(built(report)) == 2
    with pytest.raises(UserError, match="--ann-file has 2 file"):
        check_masks(folders, MaskOptions(ann_files=["a", "b"]))


def test_the_splits_are_compared(tmp_path):
    folders = write(tmp_path, "train", {"a": columns(0, 1, 2)})
    folders += write(tmp_path, "val", {"a": columns(0, 1), "b": columns(0, 0, 1)})
    same = Path(folders[0]) / "a.png"
    (Path(folders[2]) / "b.png").write_bytes(same.read_bytes())
    report = check_masks(folders)
    assert told(report.notes, "val has no pixel of 1 class(es): class_2")
    assert told(report.problems, "val: images also in train: 1", "b.png (there a.png)")


@pytest.mark.parametrize(
    "options, words",
    [
        (MaskOptions(classes=("a", "a")), "more than once"),
        (MaskOptions(classes=("a", " ")), "name 2 of 2 is blank"),
        (MaskOptions(class_set="ade"), "did you mean 'ade20k'"),
        (MaskOptions(classes=("a",), class_set="ade20k"), "--class-set brings names"),
        (MaskOptions(label_values=(0, 1)), "--label-values needs --classes"),
        (MaskOptions(reduce_zero_label=True), "--reduce-zero-label needs --classes"),
        (MaskOptions(classes=("a", "b"), label_values=(0,)), "1 entries for 2 classes"),
        (MaskOptions(classes=("a", "b"), label_values=(0, 0)), "more than one class"),
        (MaskOptions(classes=("a",), label_values=(3,), reduce_zero_label=True), "give one"),
        (MaskOptions(classes=("a",), ignore_values=(0,)), "0 is the value of a class"),
    ],
)
def test_options_that_clash(tmp_path, options, words):
    folders = write(tmp_path, "train", {"a": columns(0, 1)})
    with pytest.raises(UserError, match=words):
        check_masks(folders, options)


def test_the_tool_as_its_user(tmp_path, monkeypatch, capsys, main):
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "mine", "train", {"a": columns(0, 1, 2)})
    folders = ["mine/train/images", "mine/train/masks"]
    assert main(["masks", *folders, "--check"]) == 0
    assert main(["masks", "--check", *folders, "--classes", "x", "y", "z"]) == 0
    shown = capsys.readouterr().out
    assert 'classes = ("x", "y", "z")' in shown
    assert 'data_root="mine", data_prefix=dict(img_path="train/images"' in shown
    assert 'data_prefix=dict(img_path="val/images"' in shown
    assert (tmp_path / "work_dirs/check_masks/classes.csv").read_text().count("\n") == 4
    assert main(["masks", *folders, "--check", "--classes", "x", "y"]) == 1
    values = ["--label-values", "0", "1,2"]
    assert main(["masks", *folders, "--check", "--classes", "x", "y", *values]) == 0
    assert "label_values=(0, (1, 2))" in capsys.readouterr().out
    rest = ["--ignore-values", "rest"]
    assert main(["masks", *folders, "--check", "--classes", "x", *rest]) == 0
    cut(tmp_path / "mine/train/masks/a.png", 0.4)
    assert main(["masks", *folders, "--check"]) == 1
    assert "broken label images: 1" in capsys.readouterr().out


@pytest.mark.parametrize(
    "words, answer",
    [
        (["--check"], "0 folder(s) were given; needed are IMAGES MASKS"),
        (["one", "--check"], "1 folder(s)"),
        (["one", "tow", "--check"], "there is no folder tow .*did you mean 'two'"),
        (["one", "two", "--check"], "one has no image; it is empty"),
        (["one", "file", "--check"], "file is a file, not a folder"),
        (["one", "one", "--check"], "for the images and for the label images"),
        (["one", "two", "--check", "--ignore-values", "x"], "'x' is no whole number"),
        (["one", "two", "--check", "--label-colors", "none"], "cannot read none"),
        (["one", "two", "--check", "--out", "two/x"], "lies in the data"),
    ],
)
def test_mistakes_on_the_command_line(tmp_path, monkeypatch, main, words, answer):
    monkeypatch.chdir(tmp_path)
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    (tmp_path / "file").touch()
    if "empty" in answer or "images and for" in answer:
        assert main(["masks", *words]) == 1
        return
    with pytest.raises(UserError, match=answer.replace("(", r"\(").replace(")", r"\)")):
        main(["masks", *words])
