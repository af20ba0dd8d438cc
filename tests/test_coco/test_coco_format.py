"""Annotation files in every legal form, and in the forms that are none."""

from __future__ import annotations

import json
import os
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from polaformer.coco import format as form
from polaformer.coco.format import as_id, read_coco
from polaformer.coco.masks import covers_pixels, extent, mask_area, mask_box, normalise, run_lengths
from polaformer.errors import UserError

TRIANGLE = [10, 10, 30, 10, 10, 50]


def image(key: Any = 1, name: str = "a.png", **more: Any) -> dict[str, Any]:
    return {"id": key, "file_name": name, "width": 128, "height": 96, **more}


def ann(box: Any = (10, 20, 30, 40), **more: Any) -> dict[str, Any]:
    start = {"id": 1, "image_id": 1, "category_id": 7, "area": 5.0, "iscrowd": 0}
    return {**start, "bbox": list(box) if isinstance(box, tuple) else box, **more}


@pytest.fixture
def read(tmp_path: Path):
    def write_and_read(annotations=(), images=None, categories=None, **more: Any):
        content = {
            "images": [image()] if images is None else images,
            "categories": [{"id": 7, "name": "cat"}] if categories is None else categories,
            "annotations": list(annotations),
            **more,
        }
        path = tmp_path / "ann.json"
        path.write_text(json.dumps(content), encoding="utf-8")
        return read_coco(path)

    return write_and_read


def kinds(coco: form.CocoFile) -> dict[str, int]:
    return {k: n for k, n in coco.problem_counts().items() if k != form.MISSING_FIELD}


def test_a_plain_file_stays_as_it_is(read):
    coco = read([ann(segmentation=[TRIANGLE], keypoints=[1, 2, 2])])
    assert coco.images == [image()]
    assert coco.categories == [{"id": 7, "name": "cat"}]
    assert coco.annotations == [
        {**ann(segmentation=[TRIANGLE], keypoints=[1, 2, 2]), "bbox": [10.0, 20.0, 30.0, 40.0]}
    ]
    assert coco.by_image == {1: coco.annotations}
    assert coco.problems == []


@pytest.mark.parametrize(
    ("value", "key"),
    [(7, 7), (7.0, 7), ("7", 7), ("-3", -3), ("007", "007"), ("a b", "a b"), (2**60, 2**60)]
    + [(7.5, None), (True, None), (None, None), ("", None), ([1], None), ("²", "²")],
)
def test_ids(value, key):
    assert as_id(value) == key
    assert type(as_id(value)) is type(key)


def test_ids_of_every_sort_find_each_other(read):
    images = [image("x-1", "a.png"), image(9 * 10**15, "b.png"), image(3, "c.png")]
    coco = read(
        [ann(image_id="x-1"), ann(image_id=9e15, id=2), ann(image_id="003", id=3, category_id="7")],
        images=images,
    )
    assert [a["image_id"] for a in coco.annotations] == ["x-1", 9 * 10**15, 3]
    assert [a["category_id"] for a in coco.annotations] == [7, 7, 7]
    assert kinds(coco) == {}


def test_leading_zeros_stay_where_two_ids_would_become_one(read):
    coco = read([ann(image_id="01")], images=[image("01"), image(1, "b.png")])
    assert list(coco.by_image) == ["01", 1]
    assert len(coco.by_image["01"]) == 1


@pytest.mark.parametrize(
    ("written", "named"),
    [("000000000139", 139), (139, "000000000139"), ("139", 139), ("139.0", 139), (139, "139.0")]
    + [("0139", "139.0"), (139.0, "139")],
)
def test_the_same_number_in_another_writing_is_the_same_id(read, written, named):
    category = [{"id": written, "name": "cat"}]
    coco = read([ann(image_id=named, category_id=named)], [image(written)], category)
    assert len(coco.annotations) == 1
    assert coco.by_image[coco.images[0]["id"]] == coco.annotations
    assert coco.annotations[0]["category_id"] == coco.categories[0]["id"]


def test_a_number_that_two_ids_could_mean_names_neither(read):
    coco = read([ann(image_id=1)], images=[image("01"), image("001", "b.png")])
    assert kinds(coco) == {form.UNKNOWN_IMAGE: 1}


def test_how_the_file_writes_its_ids_is_kept_where_it_differs(read):
    images = [image("5"), image(7.0, "b.png"), image("007", "c.png"), image(9, "d.png")]
    coco = read(images=images, categories=[{"id": "3", "name": "cat"}, {"id": 4, "name": "dog"}])
    assert [i["id"] for i in coco.images] == [5, 7, "007", 9]
    assert coco.written_ids == {"images": {5: "5"}, "categories": {3: "3"}}


def test_missing_fields_get_their_obvious_value(read):
    bare = {"image_id": 1, "category_id": 7, "bbox": [1, 2, 3, 4]}
    coco = read([bare, {**bare, "segmentation": [TRIANGLE]}, {**bare, "area": -1, "iscrowd": True}])
    assert [a["area"] for a in coco.annotations] == [12.0, 400.0, 12.0]
    assert [a["iscrowd"] for a in coco.annotations] == [0, 0, 1]
    assert [a["id"] for a in coco.annotations] == [1, 2, 3]
    assert [a["segmentation"] for a in coco.annotations] == [None, [TRIANGLE], None]
    told = {text for kind, _, text in coco.problems if kind == form.MISSING_FIELD}
    assert told == {
        "'area' is missing or odd in 3 of 3",
        "'iscrowd' is missing or odd in 2 of 3",
    }


def test_a_missing_box_is_that_of_the_mask(read):
    grid = np.zeros((96, 128), bool)
    grid[5:9, 20:30] = True
    rle = {"size": [96, 128], "counts": runs_of(grid)}
    one, two = read(
        [ann(None, segmentation=[TRIANGLE]), ann([], id=2, segmentation=rle)]
    ).annotations
    assert one["bbox"] == [10, 10, 20, 40]
    assert two["bbox"] == [20, 5, 10, 4]


def test_annotation_ids_become_distinct(read):
    coco = read([ann(id=5), ann(id=5), ann(id=None), ann(id="x"), ann(id="9")])
    assert [a["id"] for a in coco.annotations] == [5, 10, 11, 12, 9]
    assert kinds(coco) == {form.SAME_ID: 1}


@pytest.mark.parametrize(
    ("entry", "kind"),
    [
        (ann(image_id=2), form.UNKNOWN_IMAGE),
        (ann(image_id=None), form.UNKNOWN_IMAGE),
        (ann(category_id=8), form.UNKNOWN_CATEGORY),
        (ann((float("nan"), 0, 5, 5)), form.BAD_BOX),
        (ann((0, 0, float("inf"), 5)), form.BAD_BOX),
        (ann((1, 2, 3)), form.BAD_BOX),
        (ann((1, 2, "x", 4)), form.BAD_BOX),
        (ann(None), form.BAD_BOX),
        (ann(17), form.BAD_BOX),
        (ann((5, 5, 0, 9)), form.NO_AREA),
        (ann((5, 5, 9, -1)), form.NO_AREA),
        (ann((128, 5, 9, 9)), form.OUTSIDE),
        (ann((-20, 5, 9, 9)), form.OUTSIDE),
        (ann((5, 300, 9, 9)), form.OUTSIDE),
        ("text", form.NO_OBJECT),
    ],
)
def test_what_is_no_object_is_left_out_and_told(read, entry, kind):
    coco = read([ann(id=100), entry])
    assert [a["id"] for a in coco.annotations] == [100]
    assert kinds(coco) == {kind: 1}
    assert coco.problems[0][1].startswith("annotations[1]")
    assert kind in form.LEFT_OUT
    aside = [{**entry, "segmentation": None}] if kind in (form.NO_AREA, form.OUTSIDE) else []
    assert coco.unreachable == ({1: aside} if aside else {})


@pytest.mark.parametrize(("area", "kept"), [(0, 0), (-3.5, -3.5), (None, 0), ("x", 0), (8, 8)])
def test_what_has_no_area_keeps_the_one_it_names(read, area, kept):
    """pycocotools sorts objects into size classes by it."""
    coco = read([ann((5, 5, 9, -1), area=area, iscrowd="1")])
    (aside,) = coco.unreachable[1]
    assert (aside["area"], aside["iscrowd"], aside["bbox"]) == (kept, 1, [5, 5, 9, -1])
    assert "annotations" not in [where for _, where, _ in coco.problems]


def test_boxes_reaching_out_are_kept_as_they_are(read):
    coco = read([ann((-5, 20, 30, 40)), ann((98.5, 20, 30, 40), id=2)])
    assert [a["bbox"] for a in coco.annotations] == [[-5, 20, 30, 40], [98.5, 20, 30, 40]]
    assert kinds(coco) == {form.PARTLY_OUTSIDE: 1}


def test_pictures_without_size_leave_boxes_alone(read):
    images = [image(1, width=0), image(2, "b.png", height=None), {"id": 3, "file_name": "c.png"}]
    coco = read([ann((500, 0, 9, 9))], images=images)
    assert {(i["width"], i["height"]) for i in coco.images} == {(None, None)}
    assert len(coco.annotations) == 1
    assert kinds(coco) == {form.NO_SIZE: 3}


def test_sizes_in_text_and_fractions_count(read):
    (one,) = read(images=[image(width="128", height=96.0)]).images
    assert (one["width"], one["height"]) == (128, 96)
    assert type(one["height"]) is int


def test_names_of_images_from_other_fields(read):
    images = [
        {"id": 1, "path": "/data/a.png"},
        {"id": 2, "coco_url": "http://images.cocodataset.org/val2017/000000000139.jpg"},
    ]
    assert [i["file_name"] for i in read(images=images).images] == [
        "/data/a.png",
        "val2017/000000000139.jpg",
    ]
    with pytest.raises(UserError, match=r"images\[0\] \(id 4\) has no file_name"):
        read(images=[{"id": 4}])


def test_images_listed_twice(read):
    coco = read([ann()], images=[image(), image(), image(2), image(3, "b.png")])
    assert [i["id"] for i in coco.images] == [1, 2, 3]
    assert kinds(coco) == {form.IMAGE_TWICE: 1, form.SAME_FILE: 1}
    with pytest.raises(UserError, match=r"'a.png' and 'b.png' have the same id 1"):
        read(images=[image(), image("1", "b.png")])


def test_categories_must_mean_one_thing(read):
    cat = {"id": 7, "name": "cat"}
    assert kinds(read(categories=[cat, cat])) == {form.CATEGORY_TWICE: 1}
    with pytest.raises(
        UserError, match=r"two categories are named 'cat' \(ids 7 and 8\), and both"
    ):
        read([ann(), ann(category_id="8")], categories=[cat, {"id": 8, "name": "cat"}])
    with pytest.raises(UserError, match="'cat' and 'dog' have the same id 7"):
        read(categories=[cat, {"id": 7, "name": "dog"}])
    with pytest.raises(UserError, match=r"categories\[1\] has no id"):
        read(categories=[cat, {"name": "dog"}])


@pytest.mark.parametrize("used", [7, "7", 0])
def test_a_second_category_of_a_name_without_annotations_is_left_out(read, used):
    """Roboflow writes the group of the classes as id 0, often with the name of one of them."""
    group, dog, cat = ({"id": i, "name": n} for i, n in ((0, "cat"), (3, "dog"), (7, "cat")))
    coco = read([ann(category_id=used), ann(category_id=3, id=2)], categories=[group, dog, cat])
    assert [c["id"] for c in coco.categories] == sorted([3, int(used)])
    assert [a["category_id"] for a in coco.annotations] == [int(used), 3]
    assert kinds(coco) == {form.NAME_TWICE: 1}
    assert f"so the name stands for {int(used)}" in coco.problems[0][2]


def test_where_nothing_is_annotated_the_first_category_of_a_name_stays(read):
    categories = [{"id": 9, "name": "cat"}, {"id": 7, "name": "cat"}]
    assert [c["id"] for c in read(categories=categories).categories] == [9]


def test_numbers_without_end(read):
    """Python turns neither 400 digits into a float nor 5000 into a number at all."""
    large, digits = 10**400, "1" * 5000
    coco = read(
        [
            ann(area=large),
            ann((large, 0, 5, 5), id=2),
            ann((0, 0, 0, 5), id=3, area=large),
            ann(id=4, segmentation=[[large, 0.5, 9, 9, 0, 9]]),
            ann(id=5, segmentation={"size": [96, large], "counts": [large, 0]}),
            ann(id=6, image_id=digits),
            ann(id=digits),
        ],
        images=[image(width=large), image(digits, "b.png"), image(3, "c.png")],
    )
    assert (coco.images[0]["width"], coco.images[1]["id"]) == (None, digits)
    assert [a["area"] for a in coco.annotations][:1] == [1200]
    assert len(coco.by_image[digits]) == 1
    assert kinds(coco) == {
        form.BAD_BOX: 1,
        form.NO_AREA: 1,
        form.BAD_MASK: 2,
        form.NO_SIZE: 1,
        form.SAME_ID: 1,
    }


def test_names_of_categories_are_text(read):
    coco = read(categories=[{"id": 3, "name": 0}, {"id": 1}, {"id": "z", "name": "Grün "}])
    assert [c["name"] for c in coco.categories] == ["0", "1", "Grün "]


@pytest.mark.parametrize("crowd", [1, True, 1.0, "1", "true"])
def test_crowds(read, crowd):
    assert read([ann(iscrowd=crowd)]).annotations[0]["iscrowd"] == 1


@pytest.mark.parametrize("crowd", [0, False, None, "0", "no", 0.0])
def test_no_crowds(read, crowd):
    entry = read([ann(iscrowd=crowd)]).annotations[0]
    assert entry["iscrowd"] == 0
    assert type(entry["iscrowd"]) is int


def test_files_that_are_not_coco(tmp_path: Path):
    path = tmp_path / "train.json"
    for content, told in {
        "[]": "a list, as results of a detector are",
        '"x"': "holds str",
        '{"data": 1}': "has no list 'images', so it is no COCO file; it has: data",
        '{"images": [], "annotations": [1]}': "has no list 'categories'",
        '{"images": {}, "categories": []}': "has no list 'images'",
        '{"images": [3], "categories": []}': r"images\[0\] has no id",
        '{"images": [],\n "x": 1,}': "line 2, column 9",
        '{"images": [{"id": 1': "line 1, column 21: the file is cut short",
        "": "the file is cut short",
        '{"images": [], "x": ' + "1" * 5000 + "}": "is no JSON text",
    }.items():
        path.write_text(content)
        with pytest.raises(UserError, match=told) as caught:
            read_coco(path)
        assert str(path) in str(caught.value)
    path.write_bytes(b'{"images": "\xff\xfe\xfa"}')
    with pytest.raises(UserError, match="no JSON text"):
        read_coco(path)
    with pytest.raises(UserError, match="is a folder"):
        read_coco(tmp_path)
    with pytest.raises(UserError, match=r"no annotation file .*trian.json; did you mean 'train"):
        read_coco(tmp_path / "trian.json")
    with pytest.raises(
        UserError, match=r"no annotation file .*val.json; in its folder: train.json"
    ):
        read_coco(tmp_path / "val.json")
    with pytest.raises(UserError, match="nor is there a folder"):
        read_coco(tmp_path / "none" / "a.json")


def test_a_file_of_images_alone_is_a_test_set(tmp_path: Path):
    path = tmp_path / "info.json"
    path.write_text(json.dumps({"images": [image()], "categories": []}), encoding="utf-8-sig")
    coco = read_coco(path)
    assert (coco.annotations, coco.by_image) == ([], {1: []})
    path.write_text(json.dumps({"images": [image(name="ä.png")]}), encoding="utf-16")
    assert read_coco(path).images[0]["file_name"] == "ä.png"


def test_a_file_is_read_once_until_it_changes(tmp_path: Path):
    path = tmp_path / "ann.json"
    path.write_text(json.dumps({"images": [image()], "categories": []}))
    first = read_coco(path)
    assert read_coco(str(path)) is first
    path.write_text(json.dumps({"images": [image(2)], "categories": []}))
    os.utime(path, ns=(1, 1))
    assert read_coco(path).images[0]["id"] == 2
    for i in range(6):
        other = tmp_path / f"{i}.json"
        other.write_text(json.dumps({"images": [image(i)], "categories": []}))
        assert read_coco(other).images[0]["id"] == i


def runs_of(grid: np.ndarray) -> list[int]:
    """Run lengths column by column, counted one pixel after the other."""
    runs, current = [0], False
    for value in grid.T.ravel():
        if bool(value) != current:
            runs.append(0)
            current = bool(value)
        runs[-1] += 1
    return runs


def blobs(seed: int, height: int = 37, width: int = 53) -> np.ndarray:
    noise = np.random.default_rng(seed).random((height // 4 + 1, width // 4 + 1)) > 0.6
    return np.kron(noise, np.ones((4, 4), bool))[:height, :width]


@pytest.mark.parametrize("seed", range(4))
def test_run_lengths_of_every_form_are_pycocotools(seed):
    drawing = pytest.importorskip("pycocotools.mask")
    grid = blobs(seed)
    packed = drawing.encode(np.asfortranarray(grid.astype(np.uint8)))
    expected = runs_of(grid)
    assert run_lengths(packed).tolist() == expected
    as_text = {"size": [37, 53], "counts": packed["counts"].decode()}
    assert run_lengths(as_text).tolist() == expected
    for rle in (packed, as_text, {"size": [37.0, 53], "counts": [float(n) for n in expected]}):
        usable, odd = normalise(rle, (37, 53))
        assert odd is None
        assert mask_area(usable) == grid.sum()
        assert mask_box(usable) == drawing.toBbox(packed).tolist()
        json.dumps(usable)


def test_long_runs_need_several_characters():
    drawing = pytest.importorskip("pycocotools.mask")
    grid = np.zeros((900, 1100), np.uint8, order="F")
    grid[:, 3:7] = grid[100:200, 500:900] = 1
    assert run_lengths(drawing.encode(grid)).tolist() == runs_of(grid)


FULL = {"size": [4, 5], "counts": [3, 2, 15]}


@pytest.mark.parametrize(
    ("rle", "told"),
    [
        ({"counts": [20]}, "have no size"),
        ({"size": [4], "counts": [20]}, "have no size"),
        ({**FULL, "size": [5, 4]}, "are for 4 x 5, the picture has 5 x 4"),
        ({**FULL, "counts": [3, 2]}, "do not fill 5 x 4"),
        ({**FULL, "counts": [3, -2, 19]}, "do not fill 5 x 4"),
        ({**FULL, "counts": [20]}, "cover no pixel"),
        ({**FULL, "counts": [3.5, 16.5]}, "not all are whole numbers"),
        ({**FULL, "counts": ["a"]}, "not all are numbers"),
        ({**FULL, "counts": "T"}, "cut short"),
        ({**FULL, "counts": "a b"}, "does not belong there"),
        ({**FULL, "counts": "ü"}, "does not|do not fill"),
        ({**FULL, "counts": "P" * 20 + "0"}, "beyond 64 bits"),
        ({**FULL, "counts": None}, "neither text nor"),
        ({**FULL, "counts": ""}, "does not belong there"),
        ("text", "neither polygons nor run lengths"),
        ([[1, 2, 3, 4]], "1 of 1 polygons without 3 points"),
        ([[1, 2, 3, 4, 5, 6, 7]], "1 of 1 polygons"),
        ([[1, 2, 3, 4, 5, float("nan")]], "1 of 1 polygons"),
        ([[1, 2, 3, 4, 5, 1e12]], "1 of 1 polygons"),
        ([[1, 2, 3, 4, 5, None]], "1 of 1 polygons"),
        ([{"size": 3}], "1 of 1 polygons"),
    ],
)
def test_masks_that_cannot_be_used(rle, told):
    usable, odd = normalise(rle, (4, 5))
    assert usable is None
    assert odd is not None
    assert Counter(bool(part in odd) for part in told.split("|"))[True] == 1


@pytest.mark.parametrize("raw", [None, [], {}, ""])
def test_no_mask_is_nothing_odd(raw):
    assert normalise(raw, (4, 5)) == (None, None)


def test_polygons_of_every_form():
    points = [[10, 10], [30, 10], [10, 50]]
    for raw in ([TRIANGLE], TRIANGLE, points, [points]):
        assert normalise(raw, None) == ([TRIANGLE], None)
    for far in ([-1e9, 0, 1e9, 0, 0, 10], [0, -1e7, 5, 1e7, 5, 5], [0, 0, float("nan"), 1, 1, 1]):
        assert normalise([far], None)[0] is None
    usable, odd = normalise([TRIANGLE, [1, 2, 3, 4]], None)
    assert usable == [TRIANGLE]
    assert odd == "1 of 2 polygons without 3 points of 2 numbers each"
    assert mask_area([TRIANGLE, TRIANGLE[::-1]]) == 800
    assert mask_box([TRIANGLE]) == [10, 10, 20, 40]


def test_extent_inside_of_the_picture():
    assert extent([TRIANGLE], None) == (20, 40)
    assert extent([TRIANGLE], (15, 30)) == (5, 20)
    assert extent([[-9, 0, -1, 0, -1, 9], TRIANGLE], (100, 100)) == (20, 40)
    assert not covers_pixels([[-9, 0, -1, 0, -1, 9]], (100, 100))
    assert not covers_pixels([[5, 5, 5, 9, 5, 20]], None)
    assert covers_pixels(FULL, (5, 4))


def test_odd_masks_of_a_file_are_told_and_the_object_kept(read):
    coco = read([ann(segmentation={"size": [1, 1], "counts": [0, 1]})])
    assert coco.annotations[0]["segmentation"] is None
    assert kinds(coco) == {form.BAD_MASK: 1}
