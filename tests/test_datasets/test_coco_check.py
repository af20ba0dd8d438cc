"""What the check of COCO data finds, on files of which every flaw is known."""

from __future__ import annotations

import copy
import hashlib
import importlib.util
import json
import math
import os
import re
import shutil
from pathlib import Path

import pytest
from picture_sets import cut, noisy
from PIL import Image

from polaformer.datasets import CocoDataset
from polaformer.datasets.prepare import coco_files
from polaformer.datasets.prepare.check import Report
from polaformer.datasets.prepare.coco_check import check_coco
from polaformer.errors import UserError

TOOL = Path(__file__).resolve().parents[2] / "tools" / "prepare_data.py"
WIDTH, HEIGHT = 48, 32


def square(x: float, y: float, side: float) -> list[list[float]]:
    return [[x, y, x + side, y, x + side, y + side, x, y + side]]


def content(split: str, count: int = 3) -> dict:
    """``count`` images; one cat and one dog in each but the last, which has nothing."""
    images = [
        {"id": i, "file_name": f"{split}_{i}.png", "width": WIDTH, "height": HEIGHT}
        for i in range(1, count + 1)
    ]
    annotations = []
    for i in range(1, count):
        for category, x in ((7, 2), (3, 20)):
            annotations.append(
                {
                    "id": len(annotations) + 1,
                    "image_id": i,
                    "category_id": category,
                    "bbox": [x, 4, 10, 10],
                    "area": 100,
                    "iscrowd": 0,
                    "segmentation": square(x, 4, 10),
                }
            )
    categories = [{"id": 7, "name": "cat"}, {"id": 3, "name": "dog"}]
    return {"images": images, "annotations": annotations, "categories": categories}


def save(root: Path, split: str, what: object) -> Path:
    path = root / "annotations" / f"instances_{split}2017.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(what if isinstance(what, str) else json.dumps(what))
    return path


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Sound data in COCO's layout."""
    for seed, split in enumerate(("train", "val")):
        folder = tmp_path / "coco" / f"{split}2017"
        folder.mkdir(parents=True)
        what = content(split)
        for i, image in enumerate(what["images"]):
            noisy((90, 120, 40), 10 * seed + i, (HEIGHT, WIDTH)).save(folder / image["file_name"])
        save(tmp_path / "coco", split, what)
    return tmp_path / "coco"


@pytest.fixture(scope="module")
def main():
    spec = importlib.util.spec_from_file_location("prepare_data_for_coco", TOOL)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.main


def with_train(root: Path, change, **options) -> Report:
    """The report after ``change`` of what the training file says."""
    what = content("train")
    change(what)
    save(root, "train", what)
    return check_coco(root, **options)


def told(texts: list[str], *words: str) -> bool:
    return any(all(word in text for word in words) for text in texts)


def row(report: Report, label: str) -> list[int]:
    """The counts in the line of the table that begins with ``label``, one for each split."""
    lines = [line.strip() for line in report.lines if line.strip().startswith(label)]
    if not lines:
        return []
    cells = re.findall(r" (\d[\d,]*)(?= |$)", lines[0])
    return [int(cell.replace(",", "")) for cell in cells]


def digests(folder: Path) -> dict[str, str]:
    return {
        str(path): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in folder.rglob("*")
        if path.is_file()
    }


def test_sound_data_have_no_problem_and_the_counts_are_right(root):
    before = digests(root)
    report = check_coco(root, files="decode")
    assert report.problems == []
    assert report.notes == []
    assert str(report).endswith("no problems found")
    assert row(report, "images listed") == [3, 3]
    assert row(report, "on disk") == [3, 3]
    assert row(report, "without objects") == [1, 1]
    assert row(report, "categories") == [2, 2]
    assert row(report, "objects that") == [4, 4]
    assert row(report, "with polygons") == [4, 4]
    table = [line.split() for line in report.lines[-3:]]
    # labels follow the ids: dog is 3, cat is 7
    assert table == [
        ["objects", "per", "class", "train2017", "val2017"],
        ["dog", "2", "2"],
        ["cat", "2", "2"],
    ]
    assert digests(root) == before


def test_files_missing_broken_not_listed_and_of_another_size(root):
    folder = root / "train2017"
    (folder / "train_1.png").rename(folder / "TRAIN_1.PNG")
    cut(folder / "train_2.png")
    noisy((1, 2, 3), 5, (40, 40)).save(folder / "train_3.png")
    (folder / "notes.txt").write_text("x")
    report = check_coco(root)
    assert row(report, "missing") == [1, 0]
    assert row(report, "on disk") == [2, 3]
    assert row(report, "images broken") == [1, 0]
    assert row(report, "images of another size") == [1, 0]
    assert told(
        report.problems, "train2017: images missing in", ": 1 (train_1.png (there is TRAIN_1.PNG"
    )
    assert told(report.problems, "broken image files: 1 (train_2.png: cut short")
    assert told(report.problems, "train_3.png", "40 x 40", "48 x 32")
    assert told(report.notes, "images in", "not listed: 1 (TRAIN_1.PNG)")
    assert len(report.problems) == 3


def test_how_closely_the_files_are_looked_at(root):
    path = root / "train2017" / "train_2.png"
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 0xFF  # the end mark is still there
    path.write_bytes(data)
    assert check_coco(root, files="header").problems == []
    assert told(check_coco(root, files="decode").problems, "broken image files: 1 (train_2.png")
    path.write_bytes(b"")
    assert told(check_coco(root, files="header").problems, "train_2.png: the file is empty")
    report = check_coco(root, files="none")
    assert report.problems == []
    assert row(report, "images broken") == []
    path.unlink()
    assert told(check_coco(root, files="none").problems, "missing")
    with pytest.raises(UserError, match=r"files='all'.*decode, header, none"):
        check_coco(root, files="all")


@pytest.mark.parametrize(
    ("recorded", "as_stored", "other"), [((48, 32), 1, 0), ((32, 48), 0, 0), ((48, 31), 0, 1)]
)
def test_turned_by_exif(root, recorded, as_stored, other):
    exif = Image.Exif()
    exif[0x0112] = 6  # a quarter turn: 48 x 32 is shown as 32 x 48
    picture = noisy((90, 120, 40), 1, (HEIGHT, WIDTH))
    picture.save(root / "train2017" / "turned.jpg", exif=exif)

    def change(what: dict) -> None:
        what["images"][2].update(file_name="turned.jpg", width=recorded[0], height=recorded[1])

    (root / "train2017" / "train_3.png").unlink()
    report = with_train(root, change)
    assert row(report, "images recorded as stored") == [as_stored, 0]
    assert row(report, "images of another size") == [other, 0]
    assert len(report.problems) == other
    assert told(report.notes, "turned.jpg") == bool(as_stored)


def test_a_header_longer_than_what_is_peeked_at_is_no_flaw(root):
    picture = noisy((90, 120, 40), 1, (HEIGHT, WIDTH))
    picture.save(root / "train2017" / "train_3.jpg", icc_profile=os.urandom(60_000))

    def change(what: dict) -> None:
        what["images"][2]["file_name"] = "train_3.jpg"

    (root / "train2017" / "train_3.png").unlink()
    assert with_train(root, change).problems == []


def test_categories(root):
    def change(what: dict) -> None:
        what["categories"] += [
            {"id": 1, "name": "Cat"},
            {"id": 2, "name": "hot dog"},
            {"id": 4, "name": "hotdog"},
            {"id": 5, "name": " bird"},
        ]

    report = with_train(root, change)
    assert told(
        report.problems, "pairs of categories that differ", "2 ('cat' and 'Cat'", "'hot dog'"
    )
    assert told(report.notes, "categories without an object: 4 (Cat; hot dog")
    assert told(report.notes, "begin or end with a blank: 1 (' bird')")
    assert told(report.problems, "val2017 lacks 4 class(es) of train", "train stands for train2017")


def test_the_splits_must_have_the_same_classes_in_the_same_order(root):
    what = content("val")
    what["categories"] = [{"id": 7, "name": "dog"}, {"id": 3, "name": "cat"}]
    save(root, "val", what)
    assert told(check_coco(root).problems, "val2017 has train's classes in another order")


def test_contradictions_are_all_told_and_the_rest_is_looked_at(root):
    def change(what: dict) -> None:
        what["images"] += [
            {"id": 1, "file_name": "other.png"},
            {"id": 50},
            {"file_name": "train_3.png", "width": WIDTH, "height": HEIGHT},
            "nonsense",
        ]
        what["categories"] += [{"id": 7, "name": "bird"}, {"id": 9, "name": "dog"}, {"name": "x"}]
        what["annotations"][0]["bbox"] = [1, 1, 0, 5]

    report = with_train(root, change)
    for words in (
        ("images with the id of another one: 1 (1 is 'train_1.png' and 'other.png'"),
        ("images without a file_name: 1 (images[4] (id 50))",),
        ("images without an id: 1", "train_3.png"),
        ("entries of images that are no objects: 1", "nonsense"),
        ("categories with the id of another one: 1 (7 is 'cat' and 'bird'"),
        ("categories with the name of another one: 1 ('dog' has the ids 3 and 9"),
        ("categories without an id: 1", "'x'"),
        ("images missing", "1 (other.png"),
        ("boxes without area: 1", "width 0, height 5"),
    ):
        assert told(report.problems, "train2017: ", *words), words


def flaw(name: str, value: object):
    def change(what: dict) -> None:
        what["annotations"][0][name] = value

    return change


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (flaw("image_id", 99), ("an image that is not listed", "99")),
        (flaw("category_id", 99), ("a category that is not listed", "99")),
        (flaw("bbox", [1, 1, math.nan, 5]), ("that are no four finite numbers", "nan")),
        (flaw("bbox", [1, 1, 5]), ("no four finite numbers", "[1, 1, 5]")),
        (flaw("bbox", [1, 1, -4, 5]), ("boxes without area", "width -4")),
        (flaw("bbox", [1, 1, 4, 0]), ("boxes without area", "height 0")),
        (flaw("bbox", [60, 1, 4, 4]), ("boxes outside of the picture", "48 x 32")),
        (
            flaw("segmentation", [[1, 1, 2, 2]]),
            ("masks that cannot be used", "annotations[0] (id 1)"),
        ),
        (
            flaw("segmentation", {"size": [9, 9], "counts": [81]}),
            ("masks that cannot be used", "9 x 9"),
        ),
        (flaw("segmentation", [[1, 1, 5, 5, 3, 3]]), ("masks without area", "id 1 in image 1")),
        (flaw("id", 2), ("ids used more than once", "2, 2 times")),
    ],
)
def test_flaws_of_annotations(root, change, words):
    report = with_train(root, change)
    assert told(report.problems, "train2017: ", ": 1 (", *words), str(report)
    assert len(report.problems) == 1


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (flaw("bbox", [40, 4, 20, 10]), ("boxes partly outside", ": 1 (", "[40, 4, 20, 10]")),
        (flaw("bbox", [4, 4, 0.5, 10]), ("boxes under a pixel", "out): 1", "id 1 in image 1")),
        (flaw("segmentation", None), ("objects without a mask while others have one: 1",)),
        (flaw("id", None), ("annotations without an id", "anew): 1")),
        (flaw("area", None), ("optional fields missing: 1", "'area'", "1 of 4")),
        (
            lambda what: what["images"][0].pop("width"),
            ("images without recorded width and height: 1",),
        ),
    ],
)
def test_what_training_copes_with_is_a_note(root, change, words):
    report = with_train(root, change)
    assert report.problems == []
    assert told(report.notes, *words), str(report)


def test_a_flaw_in_one_of_a_thousand_objects_is_a_note(root):
    def change(what: dict) -> None:
        model = what["annotations"][0]
        what["annotations"] = [
            {**model, "id": i + 1, "bbox": [i % 30, i % 20, 5 + i / 1000, 5]} for i in range(1000)
        ]
        what["annotations"][5]["bbox"] = [296.65, 388.33, 1.03, 0.0]
        what["annotations"][8]["category_id"] = 3

    report = with_train(root, change)
    assert report.problems == []
    assert told(report.notes, "boxes without area: 1")


def test_repeated_annotations_and_crowds(root):
    def change(what: dict) -> None:
        again = copy.deepcopy(what["annotations"][0])
        what["annotations"].append({**again, "id": 90})
        rle = {"size": [HEIGHT, WIDTH], "counts": [100, 50, HEIGHT * WIDTH - 150]}
        what["annotations"].append({**again, "id": 91, "iscrowd": 1, "segmentation": rle})

    report = with_train(root, change)
    assert told(
        report.problems, "objects given twice (same box and category): 1", "id 90 in image 1"
    )
    assert len(report.problems) == 1
    assert row(report, "crowd regions") == [1, 0]
    assert row(report, "with plain run lengths") == [1, 0]
    assert report.lines[-1].split() == ["cat", "3", "2"]  # without the crowd


@pytest.mark.parametrize(
    "odd, why",
    [
        ({"iscrowd": 1}, "all are regions to ignore"),
        ({"ignore": 1}, "all are regions to ignore"),
        ({"bbox": [0.1, 0.2, 0.3, 0.4]}, "every box is smaller than a pixel"),
    ],
)
def test_data_without_an_object_to_learn_are_a_problem(root, odd, why):
    def change(what: dict) -> None:
        for one in what["annotations"]:
            one.update(odd)

    report = with_train(root, change)
    assert told(report.problems, "has no objects that can be used", why)
    path = str(root / "annotations/instances_train2017.json")
    with pytest.raises(UserError, match=why):
        CocoDataset(path, data_prefix={"img": str(root / "train2017")})


def test_a_group_named_like_one_of_its_classes_is_a_note(root):
    group = {"id": 0, "name": "cat", "supercategory": "none"}
    report = with_train(root, lambda what: what["categories"].insert(0, group))
    assert report.problems == []
    assert told(report.notes, "that have the name of another one (left out): 1", "'cat' with id 0")


def test_images_listed_twice(root):
    def change(what: dict) -> None:
        what["images"] += [dict(what["images"][0]), {**what["images"][1], "id": 60}]

    report = with_train(root, change)
    assert told(report.problems, "images listed twice: 1", "'train_1.png' with id 1")
    assert told(report.problems, "image files listed under several ids: 1", "train_2.png")


def test_boxes_written_as_corners_or_fractions_are_recognised(root):
    def corners(what: dict) -> None:
        for ann in what["annotations"]:
            x, y, width, height = ann["bbox"]
            ann["bbox"] = [x + 16, y + 10, x + 16 + width, y + 10 + height]

    assert told(with_train(root, corners).problems, "not [x1, y1, x2, y2]): 4")

    def fractions(what: dict) -> None:
        for ann in what["annotations"]:
            ann["bbox"] = [0.1, 0.2, 0.3, 0.4]

    assert told(with_train(root, fractions).problems, "fractions (COCO counts pixels): 4")


def test_the_same_picture_in_both_splits(root):
    shutil.copy(root / "train2017" / "train_1.png", root / "val2017" / "val_2.png")
    report = check_coco(root)
    assert told(report.problems, "val2017: images also in train2017: 1", "there train_1.png")
    assert len(report.problems) == 1
    assert check_coco(root, files="none").problems == []


def test_of_too_many_bytes_only_files_of_one_name_are_compared(root, monkeypatch):
    shutil.copy(root / "train2017" / "train_1.png", root / "val2017" / "val_2.png")
    monkeypatch.setattr(coco_files, "_HASHED_BYTES", 0)
    assert check_coco(root).problems == []
    shutil.copy(root / "train2017" / "train_1.png", root / "val2017" / "train_1.png")
    what = content("val")
    what["images"].append({"id": 9, "file_name": "train_1.png", "width": WIDTH, "height": HEIGHT})
    save(root, "val", what)
    assert told(check_coco(root).problems, "images also in train2017: 1 (train_1.png)")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('{"images": [],\n "annotations": [}', ("line 2, column 18",)),
        ('{"images": [{"id": 1', ("cut short",)),
        ("", ("no JSON",)),
        ("[]", ("list", "results")),
        ('[{"image_id": 1, "category_id": 1, "bbox": [1, 1, 2, 2], "score": 1}]', ("results",)),
        ('"text"', ("not a COCO file",)),
        ('{"shapes": [], "imagePath": "a.png"}', ("it has: shapes, imagePath",)),
        ('{"images": {}, "annotations": []}', ("no list 'images'",)),
        (
            '{"images": [{"id": 1, "file_name": "a"}], "annotations": [{"id": 1, "image_id": 1, '
            '"caption": "a cat"}]}',
            ("holds image captions",),
        ),
        (
            '{"images": [], "categories": [], "annotations": [{"image_id": 1, "segments_info": '
            "[]}]}",
            ("holds panoptic segmentation",),
        ),
        ('{"images": [], "annotations": [], "categories": []}', ("lists no images",)),
        ('{"images": [], "annotations": [], "categories": []}', ("has no categories",)),
    ],
)
def test_files_that_are_no_coco(root, text, words):
    save(root, "train", text)
    report = check_coco(root)
    assert told(report.problems, "train2017", *words), report.problems
    assert row(report, "images listed") == row(
        report, "  on disk".strip()
    )  # val is looked at all the same


def test_layouts_that_are_found(root, tmp_path):
    plain = tmp_path / "plain"
    shutil.copytree(root / "train2017", plain / "images" / "train")
    shutil.copytree(root / "val2017", plain / "images" / "val")
    for split in ("train", "val"):
        shutil.copy(root / f"annotations/instances_{split}2017.json", plain / f"{split}.json")
    exported = tmp_path / "exported"
    for split, name in (("train", "train"), ("val", "valid")):
        shutil.copytree(root / f"{split}2017", exported / name)
        file = root / f"annotations/instances_{split}2017.json"
        shutil.copy(file, exported / name / "_annotations.coco.json")
    for folder, titles in ((plain, ("train", "val")), (exported, ("train", "valid"))):
        report = check_coco(folder)
        assert report.problems == [], folder
        assert row(report, "on disk") == [3, 3]
        assert [line.split(":")[0] for line in report.lines if ".json" in line] == list(titles)
    assert row(check_coco(plain / "val.json"), "on disk") == [3]
    (plain / "val.json").unlink()
    assert check_coco(plain).notes == [f"{plain} has a train split but no val"]


def test_without_the_folder_of_the_images_another_one_can_be_named(root):
    (root / "val2017").rename(root / "pictures")
    report = check_coco(root)
    told_so = f"val2017: images missing in {root} (--ann FILE --images FOLDER names another"
    assert told(report.problems, told_so, "there is pictures/val_1.png")
    assert len(report.problems) == 1


def test_other_annotations_of_coco_are_passed_over(root):
    (root / "annotations" / "captions_train2017.json").write_text("{}")
    (root / "annotations" / "person_keypoints_val2017.json").write_text("{}")
    assert check_coco(root).problems == []


def test_own_files_and_folders(root, tmp_path):
    names = [f"annotations/instances_{split}2017.json" for split in ("val", "train")]
    assert check_coco(root, names, ["val2017", "train2017"]).problems == []
    assert check_coco(".", [str(root / names[0])], [str(root / "val2017")]).problems == []
    wrong = check_coco(root, names, ["val2017"])
    assert told(wrong.problems, "train2017: images missing in", ": 3 (")
    twice = check_coco(root, [names[0], names[0]], files="none")
    assert row(twice, "on disk") == [3, 3]  # files of one name have columns of their own
    with pytest.raises(UserError, match="2 folders for 1"):
        check_coco(root, names[:1], ["val2017", "train2017"])
    with pytest.raises(UserError, match=r"--images: there is no folder .*nowhere"):
        check_coco(root, names, ["nowhere"])
    with pytest.raises(UserError, match=r"no file .*did you mean 'instances_val2017\.json'"):
        check_coco(root, ["annotations/instance_val2017.json"])
    with pytest.raises(UserError, match=r"has no annotation file.*--ann FILE"):
        check_coco(root / "train2017")
    with pytest.raises(UserError, match="there is no nowhere"):
        check_coco("nowhere")


def test_the_tool_tells_by_its_exit_code(root, main, capsys):
    assert main(["coco", "--check", str(root)]) == 0
    assert "no problems found" in capsys.readouterr().out
    (root / "val2017" / "val_1.png").unlink()
    assert main(["coco", "--check", str(root), "--files", "none"]) == 1
    assert "problem: val2017: images missing in" in capsys.readouterr().out
    train = ["--ann", "annotations/instances_train2017.json", "--images", "train2017"]
    assert main(["coco", "--check", str(root), *train]) == 0
    with pytest.raises(UserError, match="no file"):
        main(["coco", "--check", str(root), "--ann", "a.json"])
    with pytest.raises(SystemExit):
        main(["coco", str(root)])
