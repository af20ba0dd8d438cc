"""COCO data as a detector sees them: classes, boxes, masks, pictures, and what is left out."""

from __future__ import annotations

import copy
import json
import logging
import pickle
import unicodedata
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from torch.utils.data import DataLoader

from polaformer.datasets import CocoDataset, LoadImage
from polaformer.datasets.coco_pipeline import mask_use, shortest_edge, vanishing
from polaformer.datasets.integrity import SampleError
from polaformer.engine.data import EpochSampler, SeededDataset
from polaformer.engine.run_card import describe_data
from polaformer.errors import UserError

CATEGORIES = [{"id": 7, "name": "cat"}, {"id": 3, "name": "dog"}, {"id": 90, "name": "Bird"}]
NAMES = [f"{i}.png" for i in range(6)]
SQUARE = [[10, 10, 40, 10, 40, 40, 10, 40]]


class NeedsMasks:
    """Stands for mmdet's LoadAnnotations(with_mask=True)."""

    with_mask = True

    def __init__(self, poly2mask: bool = True) -> None:
        self.poly2mask = poly2mask

    def __call__(self, results: dict) -> dict:
        return results


def ann(image_id: Any, category_id: Any, box: tuple, **more: Any) -> dict[str, Any]:
    return {"image_id": image_id, "category_id": category_id, "bbox": list(box), **more}


class Scene:
    """Six pictures of 128x96 with ids 11, 21, …, in a folder 'img', and their annotations."""

    def __init__(self, root: Path) -> None:
        self.root = root
        (root / "img").mkdir()
        noise = np.random.default_rng(0).integers(0, 256, (96, 128, 3), dtype=np.uint8)
        for name in NAMES:
            Image.fromarray(noise).save(root / "img" / name)
        self.images = [
            {"id": 10 * i + 11, "file_name": name, "width": 128, "height": 96}
            for i, name in enumerate(NAMES)
        ]
        self.annotations = [
            ann(11, 7, (10, 20, 30, 40)),
            ann(11, 3, (50, 5, 20, 20)),
            ann(21, 90, (0, 0, 64, 48)),
            ann(31, 3, (100, 60, 20, 30)),
            ann(41, 7, (5, 5, 9, 9)),
            ann(51, 90, (60, 50, 40, 40)),
            ann(61, 7, (30, 30, 30, 30)),
        ]
        self.categories = copy.deepcopy(CATEGORIES)

    def write(self, name: str = "ann.json") -> str:
        content = {
            "images": self.images,
            "annotations": [{"id": i, **a} for i, a in enumerate(self.annotations)],
            "categories": self.categories,
        }
        (self.root / name).write_text(json.dumps(content), encoding="utf-8")
        return name

    def dataset(self, **options: Any) -> CocoDataset:
        start = {"data_root": str(self.root), "data_prefix": {"img": "img/"}, "check": "none"}
        return CocoDataset(self.write(), **{**start, **options})

    def said(self, monkeypatch: pytest.MonkeyPatch, **options: Any) -> tuple[CocoDataset, str]:
        """The data set and every warning of its building."""
        lines: list[str] = []

        def note(text: str, logger: Any = None, level: int = logging.INFO) -> None:
            lines.extend([text] if level == logging.WARNING else [])

        monkeypatch.setattr("polaformer.datasets.coco.print_log", note)
        return self.dataset(**options), "\n".join(lines)


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene(tmp_path)


def test_items(scene: Scene):
    dataset = scene.dataset()
    assert len(dataset) == 6
    assert dataset.classes == ("dog", "cat", "Bird")
    assert dataset.metainfo == {
        "classes": ("dog", "cat", "Bird"),
        "category_ids": (3, 7, 90),
        "ann_file": str(scene.root / "ann.json"),
    }
    assert dataset[0] == {
        "img_path": str(scene.root / "img/0.png"),
        "img_id": 11,
        "height": 96,
        "width": 128,
        "sample_idx": 0,
        "instances": [
            {"bbox": [10, 20, 40, 60], "bbox_label": 1, "ignore_flag": 0},
            {"bbox": [50, 5, 70, 25], "bbox_label": 0, "ignore_flag": 0},
        ],
    }
    assert dataset[-1]["sample_idx"] == 5
    with pytest.raises(IndexError):
        dataset[6]
    assert dataset.get_cat_ids(0) == [1, 0]
    assert dataset.class_counts() == {"dog": 2, "cat": 3, "Bird": 2}
    assert dataset.summary() == "6 images used, 0 without objects, 7 objects of 3 classes"


def test_names_that_do_not_match_stop(scene: Scene):
    with pytest.raises(UserError) as caught:
        scene.dataset(classes=("cat", "dog", "bird"))
    told = str(caught.value)
    assert "no category for 1 of the 3 classes: 'bird' (did you mean 'Bird'?)" in told
    assert "categories of the file that no class uses: 'Bird'" in told


@pytest.mark.parametrize("wrap", [lambda n: {"classes": n}, lambda n: {"metainfo": {"classes": n}}])
def test_label_i_is_the_ith_class_given(scene: Scene, wrap):
    dataset = scene.dataset(**wrap(("Bird", "cat", "dog")))
    assert dataset.metainfo["category_ids"] == (90, 7, 3)
    assert [one["bbox_label"] for one in dataset[0]["instances"]] == [1, 2]


def test_part_of_the_classes(scene: Scene, monkeypatch):
    dataset, said = scene.said(monkeypatch, classes=["dog"])
    assert dataset.summary() == "6 images used, 4 without objects, 2 objects of 1 classes"
    assert "object of a category that is no class: 5 (cat: 3, Bird: 2)" in said


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"classes": "cat"}, "list of names, not 'cat'"),
        ({"classes": ["cat", "cat"]}, "'?cat'? more than once"),
        ({"classes": []}, "classes is empty"),
        ({"classes": ["cat"], "metainfo": {"classes": ["dog"]}}, "differ"),
        ({"on_error": "stopp"}, "on_error='stopp'.*did you mean 'stop'"),
        ({"check": "all"}, "check='all'.*allowed: auto, decode, header, none"),
        ({"images_without_objects": "keep"}, "images_without_objects='keep'"),
        ({"data_prefix": {"image": "img"}}, "has the key 'image'; the only one is img"),
        ({"data_prefix": "img"}, "data_prefix='img' must be dict"),
        ({"data_prefix": {"img": "imgs"}}, "no folder .*imgs.*did you mean 'img'"),
    ],
)
def test_wrong_arguments(scene: Scene, options, told):
    with pytest.raises(UserError, match=told):
        scene.dataset(**options)


def test_an_annotation_file_that_is_elsewhere(scene: Scene, monkeypatch):
    monkeypatch.chdir(scene.root.parent)
    path = f"{scene.root.name}/{scene.write()}"
    with pytest.raises(UserError, match=f"{path} does exist, but ann_file counts from data_root"):
        CocoDataset(path, data_root=scene.root.name)
    here = CocoDataset(path, data_prefix={"img": f"{scene.root.name}/img"}, check="none")
    assert Path(here.metainfo["ann_file"]) == scene.root / "ann.json"
    assert here[0]["img_path"] == f"{scene.root.name}/img/0.png"


def test_images_without_objects(scene: Scene):
    crowd = ann(31, 3, (1, 1, 50, 50), iscrowd=1)
    scene.annotations = [*scene.annotations[:2], crowd]
    used = scene.dataset()
    assert used.summary() == "6 images used, 5 without objects, 2 objects of 3 classes"
    assert used[2]["instances"][0]["ignore_flag"] == 1
    dropped = scene.dataset(images_without_objects="drop")
    assert dropped.summary() == (
        "1 images used, 0 without objects, 2 objects of 3 classes, 5 images without objects dropped"
    )
    assert len(scene.dataset(images_without_objects="drop", test_mode=True)) == 6


def test_the_log_says_it_in_one_line(scene: Scene, monkeypatch):
    lines: list[str] = []
    monkeypatch.setattr(
        "polaformer.datasets.coco.print_log", lambda text, *_, **__: lines.append(text)
    )
    del scene.images[4:], scene.annotations[2:4]
    scene.annotations = [a for a in scene.annotations if a["image_id"] <= 41]
    scene.dataset(classes=("cat", "dog"))
    assert len(lines) == 1
    assert "4 images used, 2 without objects, 3 objects of 2 classes" in lines[0]


def test_small_pictures_are_left_out_in_training(scene: Scene):
    Image.new("RGB", (128, 20)).save(scene.root / "img/0.png")
    scene.images[0]["height"] = 20
    assert "1 images under 32 pixels left out" in scene.dataset(min_size=32).summary()
    assert len(scene.dataset(min_size=32)) == 5
    assert len(scene.dataset(min_size=32, test_mode=True)) == 6


def test_boxes_are_clipped_and_slivers_left_out(scene: Scene, monkeypatch):
    scene.annotations = [
        ann(11, 7, (-10, 80, 30, 40)),
        ann(11, 7, (127.5, 0, 30, 30)),
        ann(11, 7, (5, 5, 0.4, 30)),
        ann(11, 7, (5, 5, float("nan"), 30)),
        ann(99, 7, (5, 5, 5, 30)),
    ]
    dataset, said = scene.said(monkeypatch)
    assert [one["bbox"] for one in dataset[0]["instances"]] == [[0, 80, 20, 96]]
    for told in (
        "box partly outside of the picture: 2 (annotations[0] (id 0): [-10, 80, 30, 40] in a",
        "box smaller than a pixel: 2",
        "box that is no four finite numbers: 1 (annotations[3] (id 3): [5, 5, nan, 30])",
        "annotation of an unknown image: 1 (annotations[4] (id 4): image_id 99)",
        "classes without an object: dog, Bird",
    ):
        assert told in said


def test_sizes_that_the_file_lacks_come_from_the_pictures(scene: Scene):
    for one in scene.images:
        one.pop("width"), one.update(height=0)
    exif = Image.Exif()
    exif[0x0112] = 6
    Image.new("RGB", (40, 30)).save(scene.root / "img/0.png", exif=exif)
    scene.annotations[0]["bbox"] = [-5, 0, 500, 500]
    scene.annotations[1]["bbox"] = [35, 0, 20, 20]
    item = scene.dataset(check="decode")[0]
    assert (item["width"], item["height"]) == (30, 40)
    assert [one["bbox"] for one in item["instances"]] == [[0, 0, 30, 40]]


def test_nothing_to_train_on_says_why(scene: Scene):
    kept = scene.annotations
    for changed, told in {
        (): "the file has no annotations",
        tuple(range(7)): "every box is smaller than a pixel; COCO's boxes are in pixels",
    }.items():
        scene.annotations = [ann(kept[i]["image_id"], 7, (0.1, 0.2, 0.5, 0.6)) for i in changed]
        with pytest.raises(UserError, match=told):
            scene.dataset()
        with pytest.raises(UserError, match=f"no image is left: .* 6 are without.*{told}"):
            scene.dataset(images_without_objects="drop")
        assert scene.dataset(test_mode=True).summary().startswith("6 images used, 6 without")
    scene.annotations = [ann(11, 7, (1, 1, 20, 20), iscrowd=1)]
    with pytest.raises(UserError, match="all are regions to ignore"):
        scene.dataset()
    scene.images = []
    with pytest.raises(UserError, match="no image is left: the file lists none"):
        scene.dataset()


def test_masks_travel_only_where_they_are_used(scene: Scene):
    scene.annotations[0]["segmentation"] = SQUARE
    assert scene.dataset()[0]["instances"][0]["mask"] == SQUARE
    assert "mask" not in scene.dataset()[0]["instances"][1]
    assert "mask" not in scene.dataset(pipeline=[LoadImage()])[0]["instances"][0]
    assert scene.dataset(pipeline=[NeedsMasks()])[0]["instances"][0]["mask"] == SQUARE


@pytest.mark.parametrize("recorded", [True, False])
def test_a_mask_for_another_size_than_the_pictures_is_not_used(scene: Scene, recorded):
    """Also where only the picture itself tells its size."""
    masks = [{"size": size, "counts": [0, size[0] * size[1]]} for size in ([40, 50], [96, 128])]
    scene.annotations = [ann(11, 7, (10, 10, 50, 50), segmentation=mask) for mask in masks]
    if not recorded:
        for image in scene.images:
            del image["width"], image["height"]
    instances = scene.dataset(pipeline=[NeedsMasks()])[0]["instances"]
    box = [[10.0, 10.0, 60.0, 10.0, 60.0, 60.0, 10.0, 60.0]]
    assert [one["mask"] for one in instances] == [box, masks[1]]
    assert [one["ignore_flag"] for one in instances] == [1, 0]


def test_objects_without_a_usable_mask_become_regions_to_ignore(scene: Scene, monkeypatch):
    masks: list[Any] = [
        SQUARE,
        [],
        [[1, 2, 3, 4]],
        {"size": [96, 128], "counts": [0, 128 * 96]},
        {"size": [128, 96], "counts": [0, 128 * 96]},
        [[200, 10, 230, 10, 230, 40]],
        [[10.0, 10.0, 60.0, 60.0, 10.1, 10.1]],
    ]
    scene.annotations = [ann(11, 7, (10, 10, 50, 50), segmentation=mask, area=3) for mask in masks]
    dataset, said = scene.said(monkeypatch, pipeline=[NeedsMasks()])
    instances = dataset[0]["instances"]
    box = [[10.0, 10.0, 60.0, 10.0, 60.0, 60.0, 10.0, 60.0]]
    assert [one["mask"] for one in instances] == [SQUARE, box, box, masks[3], box, box, box]
    assert [one["ignore_flag"] for one in instances] == [0, 1, 1, 0, 1, 1, 1]
    assert "object without a usable mask, now a region to ignore: 5" in said
    assert "mask that cannot be used: 2 (annotations[2] (id 2): 1 of 1 polygons" in said
    polygons = scene.dataset(pipeline=[NeedsMasks(poly2mask=False)])[0]["instances"]
    assert [one["ignore_flag"] for one in polygons] == [0, 1, 1, 1, 1, 1, 1]
    scene.annotations = [ann(11, 7, (10, 10, 50, 50), segmentation=[])]
    with pytest.raises(UserError, match="no object has a usable mask, but the pipeline loads"):
        scene.dataset(pipeline=[NeedsMasks()])
    assert scene.dataset(pipeline=[NeedsMasks()], test_mode=True)[0]["instances"][0]["mask"] == box


@pytest.mark.parametrize(
    ("pipeline", "use"),
    [
        ([], "optional"),
        ([{"type": "LoadAnnotations"}], "none"),
        ([{"type": "LoadAnnotations", "with_mask": False}, LoadImage()], "none"),
        ([{"type": "LoadAnnotations", "with_mask": True}], "any"),
        ([{"type": "LoadAnnotations", "with_mask": True, "poly2mask": False}], "polygons"),
        ([{"type": "X", "transforms": [[{"type": "L", "with_mask": True}]]}], "any"),
        ([NeedsMasks()], "any"),
    ],
)
def test_what_a_pipeline_does_with_masks(pipeline, use):
    assert mask_use(pipeline) == use


def test_awkward_names_of_files(scene: Scene):
    (scene.root / "img/sub dir").mkdir()
    names = ["sub dir/ü 1.PNG", "back\\slash.png"]
    for name in names:
        Image.new("RGB", (128, 96)).save(scene.root / "img" / name)
    Image.new("RGB", (128, 96)).save(scene.root / "elsewhere.png")
    given = {
        "sub dir\\ü 1.PNG": "img/sub dir/ü 1.PNG",
        "sub dir/ü 1.PNG": "img/sub dir/ü 1.PNG",
        "back\\slash.png": "img/back\\slash.png",
        "C:\\Users\\me\\sub dir\\ü 1.PNG": "img/sub dir/ü 1.PNG",
        "/home/me/data/1.png": "img/1.png",
        str(scene.root / "elsewhere.png"): "elsewhere.png",
    }
    scene.images = [
        {"id": 10 * i + 11, "file_name": name, "width": 128, "height": 96}
        for i, name in enumerate(given)
    ]
    dataset = scene.dataset(check="decode")
    found = [Path(dataset[i]["img_path"]) for i in range(6)]
    assert found == [scene.root / path for path in given.values()]


def test_accents_in_one_sign_or_two(scene: Scene):
    for place, name in enumerate(("Bj\u00f6rn.png", "A\u030angstro\u0308m.png")):
        Image.new("RGB", (128, 96)).save(scene.root / "img" / name)
        other = unicodedata.normalize("NFD" if place == 0 else "NFC", name)
        scene.images[place]["file_name"] = other
    scene.images[2]["file_name"] = "\ud800\0.png"
    dataset = scene.dataset(check="decode", on_error="skip")
    assert len(dataset.skipped) == 1
    assert Path(dataset[0]["img_path"]).name == "Bj\u00f6rn.png"


def test_sizes_of_pictures_whose_header_is_long_or_at_the_end(scene: Scene):
    exif = Image.Exif()
    exif[0x0112] = 6
    exif[0x9286] = b"x" * 50_000
    Image.new("RGB", (96, 128)).save(scene.root / "img/long.jpg", exif=exif)
    noise = np.random.default_rng(0).integers(0, 256, (96, 128, 3), dtype=np.uint8)
    Image.fromarray(noise).save(scene.root / "img/end.tif", compression="tiff_lzw")
    scene.images[0]["file_name"] = "long.jpg"
    scene.images[1]["file_name"] = "end.tif"
    for check in ("header", "decode"):
        assert len(scene.dataset(check=check)) == 6
        scene.images[0]["width"], scene.images[0]["height"] = 96, 128
        assert len(scene.dataset(check=check)) == 6
        scene.images[1]["width"] = 127
        with pytest.raises(UserError, match=r"1 of 6 images are bad:\n.*end.tif: the picture is"):
            scene.dataset(check=check)
        scene.images[0]["width"], scene.images[0]["height"] = 128, 96
        scene.images[1]["width"] = 128


def test_classes_come_in_the_order_of_their_ids_numbers_first(scene: Scene):
    scene.categories = [{"id": key, "name": f"n{key}"} for key in ("b", 90, "a", 7, 3, "12")]
    assert scene.dataset().metainfo["category_ids"] == (3, 7, 12, 90, "a", "b")


@pytest.fixture
def awkward(scene: Scene) -> Scene:
    """Six pictures: one cut short, one missing, one of another size; three are good."""
    data = (scene.root / "img/1.png").read_bytes()
    (scene.root / "img/1.png").write_bytes(data[: int(len(data) * 0.6)])
    (scene.root / "img/2.png").unlink()
    Image.new("RGB", (64, 96)).save(scene.root / "img/4.png")
    return scene


@pytest.mark.parametrize("check", ["auto", "decode", "header"])
def test_bad_images_stop_before_training(awkward: Scene, check: str):
    with pytest.raises(UserError) as caught:
        awkward.dataset(check=check)
    told = str(caught.value)
    assert "3 of 6 images are bad:" in told
    assert f"{awkward.root}/img/1.png: cut short" in told
    assert f"{awkward.root}/img/2.png: the file is missing" in told
    assert "img/4.png: the picture is 64 x 96 pixels, but 128 x 96 are recorded" in told
    assert "on_error='skip'" in told
    assert "0.png" not in told


def test_bad_images_are_skipped_where_asked(awkward: Scene, monkeypatch):
    before = {path: path.read_bytes() for path in awkward.root.rglob("*") if path.is_file()}
    dataset, said = awkward.said(monkeypatch, check="auto", on_error="skip")
    assert [name for name, _ in dataset.skipped] == ["1.png", "2.png", "4.png"]
    assert "3 skipped: 1.png (cut short" in said
    assert dataset.summary().startswith("3 images used, 0 without objects, 4 objects")
    assert dataset.summary().endswith("3 skipped")
    assert [dataset[i]["img_id"] for i in range(3)] == [11, 41, 61]
    assert describe_data(dataset)["skipped"] == 3
    for path, data in before.items():
        assert path.read_bytes() == data or path.name == "ann.json"


def test_a_wrong_folder_is_noticed(scene: Scene):
    (scene.root / "other").mkdir()
    with pytest.raises(UserError) as caught:
        scene.dataset(check="auto", data_prefix={"img": "other"}, on_error="skip")
    told = str(caught.value)
    assert "6 of 6 images are bad" in told
    assert "… and 3 more" in told
    assert f"but {scene.root}/img/0.png exists: data_prefix=dict(img=…) must lead to" in told


def test_what_breaks_later_is_named(scene: Scene):
    strict = scene.dataset(pipeline=[LoadImage()], check="decode")
    tolerant = scene.dataset(pipeline=[LoadImage()], check="decode", on_error="skip")
    seen = scene.dataset(pipeline=[LoadImage()], on_error="skip", test_mode=True)
    (scene.root / "img/2.png").write_bytes(b"")
    for dataset in (strict, seen):
        with pytest.raises(SampleError, match=r"img/2\.png: the file is empty"):
            dataset[2]
    with pytest.raises(SampleError, match=r"bad image .*img/2\.png: the file is empty"):
        strict.read_image(2)
    assert tolerant[2]["img_id"] == 41
    assert strict.read_image(3).size == (128, 96)


class DropsImages:
    """Gives None for some images, as mmdet's FilterAnnotations does."""

    def __init__(self, *ids: int) -> None:
        self.ids = ids

    def __call__(self, results: dict) -> dict | None:
        return None if results["img_id"] in self.ids else results


def test_an_image_that_the_pipeline_drops_is_replaced_by_the_next(scene: Scene):
    dataset = scene.dataset(pipeline=[DropsImages(31, 61)])
    assert [dataset[i]["img_id"] for i in range(6)] == [11, 21, 41, 41, 51, 11]
    with pytest.raises(SampleError, match=r"gives nothing for .*2\.png"):
        scene.dataset(pipeline=[DropsImages(31)], test_mode=True)[2]
    with pytest.raises(SampleError, match="gives nothing for 6 images"):
        scene.dataset(pipeline=[DropsImages(11, 21, 31, 41, 51, 61)])[0]


RESIZE = {"type": "Resize", "scale": (1333, 800), "keep_ratio": True}


@pytest.mark.parametrize(
    ("pipeline", "edge"),
    [
        ([], None),
        ([{**RESIZE, "keep_ratio": False}], None),
        ([RESIZE], 1333),
        ([{**RESIZE, "scale": 640}], 640),
        (
            [
                {
                    "type": "RandomChoiceResize",
                    "scales": [(480, 1333), [400, 600]],
                    "keep_ratio": True,
                }
            ],
            600,
        ),
        ([{"type": "TTA", "transforms": [[RESIZE, {**RESIZE, "scale": (1000, 600)}]]}], 1000),
    ],
)
def test_the_shortest_longer_edge_of_a_pipeline(pipeline, edge):
    assert shortest_edge(pipeline) == edge


@pytest.mark.parametrize(("long", "left"), [(2666, 1), (2667, 0), (3000, 0)])
def test_the_bound_for_thin_pictures_is_that_of_mmcv(long, left):
    """mmcv.image.geometric._scale_size: int(side * factor + 0.5); OpenCV refuses 0."""
    assert int(1 * 1333 / long + 0.5) == left
    for size in ((long, 1), (1, long)):
        assert (vanishing(size, 1333) is None) == (left == 1)
    assert vanishing((long, 2), 1333) is None


@pytest.mark.parametrize("test_mode", [False, True])
@pytest.mark.parametrize("recorded", [False, True])
def test_a_picture_too_thin_for_the_pipeline_stops_before_training(
    scene: Scene, test_mode, recorded
):
    Image.new("RGB", (3000, 1)).save(scene.root / "img/3.png")
    scene.images[3].update({"width": 3000, "height": 1} if recorded else {"width": 0})
    options = {"pipeline": [LoadImage(), Keeps()], "test_mode": test_mode}
    with pytest.raises(UserError) as caught:
        scene.dataset(**options)
    assert "1 of 6 images are bad:" in str(caught.value)
    assert f"{scene.root / 'img/3.png'}: 3000 x 1 pixels are too thin" in str(caught.value)
    dataset = scene.dataset(on_error="skip", **options)
    assert [name for name, _ in dataset.skipped] == ["3.png"]
    assert len(dataset) == 5
    if not test_mode:
        assert len(scene.dataset(min_size=2, **options)) == 5


class Keeps:
    """Stands for mmdet's Resize."""

    scale, keep_ratio = (1333, 800), True

    def __call__(self, results: dict) -> dict:
        return results


class Fails:
    """Stands for cv2.resize with a height of 0, whose error has several lines."""

    def __call__(self, results: dict) -> dict:
        raise ValueError("\nAssertion failed\nin function 'resize'\n")


@pytest.mark.parametrize("test_mode", [False, True])
@pytest.mark.parametrize("workers", [0, 1])
def test_a_picture_that_the_pipeline_fails_on_is_named(scene: Scene, test_mode, workers):
    dataset = scene.dataset(pipeline=[LoadImage(), Fails()], test_mode=test_mode)
    with pytest.raises(SampleError) as caught:
        next(iter(DataLoader(dataset, num_workers=workers)))
    told = str(caught.value)
    assert told.startswith(
        f"the pipeline fails on {scene.root / 'img/0.png'} (128 x 96 pixels): ValueError: "
        f"Assertion failed (__call__ in {__file__}:"
    )
    assert "\n" not in told
    if not workers:
        assert isinstance(caught.value.__cause__, ValueError)


def test_works_under_the_seeding_sampler_and_in_other_processes(scene: Scene):
    dataset = pickle.loads(pickle.dumps(scene.dataset()))
    seeded = SeededDataset(dataset)
    order = list(EpochSampler(seeded, seed=1))
    assert sorted(item["img_id"] for item in seeded.__getitems__(order)) == [11, 21, 31, 41, 51, 61]
    facts = describe_data(seeded)
    assert (facts["samples"], facts["classes"]) == (6, 3)


def test_fingerprint(scene: Scene, tmp_path: Path):
    first = scene.dataset().fingerprint()
    assert first == scene.dataset().fingerprint()
    moved = tmp_path / "moved"
    moved.mkdir()
    other = Scene(moved)
    assert other.dataset().fingerprint() == first
    changes = {
        "box": lambda: scene.annotations[0].update(bbox=[10, 20, 30, 41]),
        "label": lambda: scene.annotations[0].update(category_id=90),
        "crowd": lambda: scene.annotations[0].update(iscrowd=1),
        "mask": lambda: scene.annotations[0].update(segmentation=SQUARE),
        "id": lambda: scene.images[5].update(id=62),
        "class": lambda: scene.categories[2].update(name="bird"),
        "file": lambda: (scene.root / "img/3.png").write_bytes(b"x"),
    }
    seen = {first}
    for change in changes.values():
        change()
        seen.add(scene.dataset().fingerprint())
    assert len(seen) == len(changes) + 1


def test_mmdets_transforms_take_the_items(scene: Scene):
    pytest.importorskip("mmdet")
    import mmdet.datasets  # noqa: F401
    from mmengine.registry import DATASETS, DefaultScope

    half = {"size": [96, 128], "counts": [0, 64 * 96, 64 * 96]}
    scene.annotations = [
        ann(11, 7, (10, 10, 30, 30), segmentation=SQUARE),
        ann(11, 3, (0, 0, 64, 96), segmentation=half),
        ann(11, 90, (5, 5, 40, 40), segmentation=half, iscrowd=1),
        ann(11, 7, (20, 20, 10, 10), segmentation=[]),
    ]
    pipeline = [
        {"type": "polaformer.LoadImage"},
        {"type": "LoadAnnotations", "with_bbox": True, "with_mask": True},
        {"type": "Resize", "scale": (256, 192), "keep_ratio": True},
        {"type": "RandomFlip", "prob": 1.0},
        {"type": "PackDetInputs"},
    ]
    config = {
        "type": "polaformer.CocoDataset",
        "ann_file": scene.write(),
        "data_root": str(scene.root),
        "data_prefix": {"img": "img/"},
        "pipeline": pipeline,
    }
    with DefaultScope.overwrite_default_scope("mmdet"):
        packed = DATASETS.build(config)
        first, empty = packed[0], packed[1]
    sample = first["data_samples"]
    assert tuple(first["inputs"].shape) == (3, 192, 256)
    assert sample.img_id == 11
    assert sample.gt_instances.labels.tolist() == [1, 0]
    assert sample.gt_instances.bboxes.tensor.tolist() == [[176, 20, 236, 80], [128, 0, 256, 192]]
    masks = sample.gt_instances.masks.masks
    assert masks.shape == (2, 192, 256)
    assert masks[1, :, 128:].all()
    assert not masks[1, :, :128].any()
    assert len(sample.ignored_instances) == 2
    assert len(empty["data_samples"].gt_instances) == 0
