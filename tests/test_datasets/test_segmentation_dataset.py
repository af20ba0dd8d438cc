"""Images with label images: pairs, sizes, values, broken files, and what is said of them."""

from __future__ import annotations

import os
import pickle
import unicodedata
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from mask_sets import HEIGHT, NAMES, WIDTH, Scene, picture, stripes
from picture_sets import cut
from PIL import Image
from torch.utils.data import DataLoader

from polaformer.datasets import LoadImage, LoadMask, SegmentationDataset
from polaformer.datasets.integrity import SampleError
from polaformer.datasets.mask_pairs import propose_suffixes
from polaformer.engine.run_card import describe_data
from polaformer.errors import UserError

LOADING = [LoadImage(), LoadMask()]


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene(tmp_path)


def refused(scene: Scene, **options: Any) -> str:
    with pytest.raises(UserError) as caught:
        scene.dataset(**options)
    return str(caught.value)


def tree(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


class TestItems:
    def test_items(self, scene: Scene):
        before = tree(scene.root)
        dataset = scene.dataset()
        assert len(dataset) == 3
        assert dataset.classes == NAMES
        assert dataset.metainfo == {
            "classes": NAMES,
            "palette": ((0, 0, 0), (128, 0, 0), (0, 128, 0)),
        }
        item = dataset[1]
        assert item.pop("label_coding") is dataset.coding
        assert item == {
            "img_path": str(scene.images / "1.jpg"),
            "seg_map_path": str(scene.masks / "1.png"),
            "img_id": "1",
            "height": HEIGHT,
            "width": WIDTH,
            "seg_fields": [],
            "reduce_zero_label": False,
            "sample_idx": 1,
        }
        assert dataset[-1]["sample_idx"] == 2
        with pytest.raises(IndexError):
            dataset[3]
        assert dataset.summary() == "3 images with label images of 3 classes"
        assert dataset.read_image(0).size == (WIDTH, HEIGHT)
        np.testing.assert_array_equal(dataset.read_mask(0), stripes(0, 1, 2))
        assert tree(scene.root) == before

    def test_loaded(self, scene: Scene):
        got = scene.dataset(pipeline=LOADING)[0]
        np.testing.assert_array_equal(got["gt_seg_map"], stripes(0, 1, 2))
        assert got["gt_seg_map"].dtype == np.uint8
        assert got["seg_fields"] == ["gt_seg_map"]
        assert got["img"].shape == (HEIGHT, WIDTH, 3)

    def test_workers_and_copies_see_the_same(self, scene: Scene):
        dataset = scene.dataset(pipeline=LOADING)
        copy = pickle.loads(pickle.dumps(dataset))
        loader = DataLoader(dataset, batch_size=None, num_workers=1, collate_fn=lambda one: one)
        for one, other in zip(loader, (copy[i] for i in range(3)), strict=True):
            assert one["img_path"] == other["img_path"]
            np.testing.assert_array_equal(one["gt_seg_map"], other["gt_seg_map"])

    def test_sizes_are_known_without_a_check(self, scene: Scene):
        info = scene.dataset(check="none").get_data_info(0)
        assert (info["width"], info["height"]) == (WIDTH, HEIGHT)

    def test_fingerprint(self, scene: Scene, tmp_path: Path):
        first = scene.dataset().fingerprint()
        assert scene.dataset(check="none").fingerprint() == first
        assert scene.dataset(reduce_zero_label=True, ignore_values=(9,), check="none")
        assert scene.dataset(ignore_values=(9,)).fingerprint() != first
        assert scene.dataset(classes=("a", "b", "c")).fingerprint() != first
        facts = describe_data(scene.dataset())
        assert facts["fingerprint"] == first
        assert (facts["samples"], facts["classes"]) == (3, 3)
        scene.add("1", stripes(2, 2, 1, 0, 1))
        assert scene.dataset().fingerprint() != first

    def test_sub_folders_are_mirrored(self, scene: Scene):
        scene.add("town/b/4")
        assert [scene.dataset()[i]["img_id"] for i in range(4)] == ["0", "1", "2", "town/b/4"]

    def test_images_alone_for_prediction(self, scene: Scene):
        prefix = {"img_path": "images", "seg_map_path": None}
        dataset = scene.dataset(data_prefix=prefix, test_mode=True, pipeline=[LoadImage()])
        assert "seg_map_path" not in dataset[0]
        assert dataset[0]["img"].shape == (HEIGHT, WIDTH, 3)
        assert dataset.summary() == "3 images of 3 classes"
        with pytest.raises(UserError, match="no label images"):
            dataset.read_mask(0)
        assert "trains on nothing" in refused(scene, data_prefix=prefix)


class TestPairs:
    def test_files_without_partner_are_named(self, scene: Scene):
        scene.add("4", mask=None)
        scene.add("5", image=None)
        told = refused(scene)
        assert "2 files without partner" in told
        assert f"{scene.images}/4.jpg: an image without its label image in {scene.masks}" in told
        assert f"{scene.masks}/5.png: a label image without its image" in told
        assert "on_error='skip'" in told

    def test_files_without_partner_may_be_left_out(self, scene: Scene, monkeypatch):
        scene.add("4", mask=None)
        scene.add("5", image=None)
        dataset, told = scene.said(monkeypatch, on_error="skip")
        assert len(dataset) == 3
        assert [os.path.basename(path) for path, _ in dataset.skipped] == ["4.jpg", "5.png"]
        assert "2 skipped" in told
        assert dataset.summary().endswith("2 files skipped")

    def test_long_lists_are_cut(self, scene: Scene):
        for i in range(60):
            scene.add(f"x{i:02d}", mask=None)
        told = refused(scene)
        assert "60 files without partner" in told
        assert "… and 50 more" in told

    def test_two_files_of_one_name(self, scene: Scene):
        scene.add("0", image=".png", mask=None)
        assert "0.jpg: the same name as 0.png, so it is open which one is the image" in refused(
            scene
        )
        assert len(scene.dataset(on_error="skip")) == 2
        assert len(scene.dataset(img_suffix=".jpg")) == 3
        (scene.images / "0.png").unlink()
        scene.add("0", image=None, mask=".tif")
        told = refused(scene)
        assert "which one is the label image" in told
        assert "1 double names" in told
        assert "without partner" not in told

    def test_endings_in_capitals_and_hidden_files(self, scene: Scene):
        scene.add("A", image=".JPG", mask=".PNG")
        (scene.images / ".hidden.jpg").write_bytes(b"")
        (scene.masks / "._0.png").write_bytes(b"")
        (scene.masks / "Thumbs.db").write_bytes(b"")
        assert len(scene.dataset()) == 4
        assert len(scene.dataset(img_suffix=".jpg", seg_map_suffix=".png")) == 4

    def test_names_that_differ_in_case_only(self, scene: Scene):
        scene.add("Road", mask=None)
        scene.add("road", image=None)
        assert "but there is road.png (case differs)" in refused(scene)

    def test_accents_written_in_two_ways(self, scene: Scene):
        scene.add(unicodedata.normalize("NFC", "grün"), mask=None)
        scene.add(unicodedata.normalize("NFD", "grün"), image=None)
        assert len(scene.dataset()) == 4

    def test_suffixes(self, tmp_path: Path):
        scene = Scene(tmp_path, 0)
        for name in ("aachen/a_1", "bonn/b_2"):
            scene.add(name, image="_leftImg8bit.png", mask="_gtFine_labelIds.png")
            scene.add(name, image=None, mask="_gtFine_color.png")
        told = refused(scene)
        assert "not a single image has a label image of its name" in told
        assert "aachen/a_1_leftImg8bit.png" in told
        suffixes = {"img_suffix": "_leftImg8bit.png", "seg_map_suffix": "_gtFine_labelIds.png"}
        dataset = scene.dataset(**suffixes)
        assert [dataset[i]["img_id"] for i in range(2)] == ["aachen/a_1", "bonn/b_2"]
        told = refused(scene, **{**suffixes, "seg_map_suffix": "_labels.png"})
        assert "has no label image that ends in '_labels.png'; it holds: " in told
        assert "img_suffix=5 must be" in refused(scene, img_suffix=5)

    def test_suffixes_are_proposed(self, tmp_path: Path):
        scene = Scene(tmp_path, 0)
        for stem in ("x1", "x12"):
            scene.add(stem, image="_rgb.jpg", mask="_seg.png")
        assert "try img_suffix='_rgb.jpg', seg_map_suffix='_seg.png'" in refused(scene)
        assert propose_suffixes(["a.jpg"], ["b.png"]) is None
        assert propose_suffixes(["a.jpg", "b.jpg"], ["a_m.png", "b_m.png"]) == (".jpg", "_m.png")

    def test_one_folder_for_both(self, tmp_path: Path):
        scene = Scene(tmp_path, 2)
        for path in scene.masks.iterdir():
            path.rename(scene.images / f"{path.stem}_seg.png")
        both = {"img_path": "images", "seg_map_path": "images/"}
        assert "for the images and for the label images" in refused(scene, data_prefix=both)
        told = refused(scene, data_prefix=both, img_suffix=".jpg", seg_map_suffix=".jpg")
        assert "for the images and for the label images" in told
        options = {"img_suffix": ".jpg", "seg_map_suffix": "_seg.png"}
        assert len(scene.dataset(data_prefix=both, **options)) == 2

    @pytest.mark.parametrize(
        "outer, inner", [("img_path", "seg_map_path"), ("seg_map_path", "img_path")]
    )
    def test_one_folder_inside_of_the_other(self, scene: Scene, outer: str, inner: str):
        folders = {"img_path": scene.images, "seg_map_path": scene.masks}
        (folders[inner]).rename(folders[outer] / "inner")
        name = folders[outer].name
        dataset = scene.dataset(data_prefix={outer: name, inner: f"{name}/inner"})
        assert len(dataset) == 3

    def test_empty_and_missing_folders(self, scene: Scene):
        (scene.root / "none").mkdir()
        prefix = {"img_path": "images", "seg_map_path": "none"}
        told = refused(scene, data_prefix=prefix)
        assert told == f"{scene.root}/none has no label image; it is empty"
        (scene.root / "none" / "readme.txt").touch()
        assert "it holds: readme.txt" in refused(scene, data_prefix=prefix)
        told = refused(scene, data_prefix={"img_path": "image", "seg_map_path": "masks"})
        assert "did you mean 'images'?" in told
        with pytest.raises(UserError, match="there is no folder"):
            scene.dataset(data_root=str(scene.root / "gone"))

    @pytest.mark.parametrize(
        "prefix, told",
        [
            ({"img_path": "images"}, "lacks seg_map_path"),
            ({"img": "images", "seg_map_path": "masks"}, "must be dict"),
            ({"img_path": 3, "seg_map_path": "masks"}, "must be dict"),
            ({"img_path": None, "seg_map_path": "masks"}, "must be dict"),
            ("images", "must be dict"),
        ],
    )
    def test_wrong_prefixes(self, scene: Scene, prefix: Any, told: str):
        assert told in refused(scene, data_prefix=prefix)


class TestList:
    def write(self, scene: Scene, text: str, encoding: str = "utf-8") -> str:
        (scene.root / "list.txt").write_text(text, encoding=encoding)
        return "list.txt"

    def test_listed_images(self, scene: Scene):
        scene.add("4", mask=None)  # not listed, so not missed
        name = self.write(scene, "\ufeff2\n\n# a remark\n0.jpg\n2\n")
        dataset = scene.dataset(ann_file=name)
        assert [dataset[i]["img_id"] for i in range(len(dataset))] == ["2", "0"]

    def test_listed_files_that_are_missing(self, scene: Scene):
        scene.add("4", mask=None)
        told = refused(scene, ann_file=self.write(scene, "0\n4\n7\n"))
        assert "4.jpg: an image without its label image" in told
        assert "7: listed, but there is no such image" in told
        assert len(scene.dataset(ann_file="list.txt", on_error="skip")) == 1

    def test_wrong_lists(self, scene: Scene):
        self.write(scene, "\n")
        assert "did you mean 'list.txt'?" in refused(scene, ann_file="lists.txt")
        assert 'the whole folder write ann_file=""' in refused(scene, ann_file="lists.txt")
        assert "lists no image" in refused(scene, ann_file="list.txt")
        self.write(scene, "images/0.jpg\n")
        told = refused(scene, ann_file="list.txt")
        assert f"lists no image of {scene.images}: it says images/0.jpg; expected are" in told
        (scene.root / "list.txt").write_bytes(b"\xff\xfe\xff")
        assert "is not UTF-8" in refused(scene, ann_file="list.txt")

    def test_lists_count_from_the_root(self, scene: Scene, tmp_path: Path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        (tmp_path / "mine").mkdir()
        Path("mine/list.txt").write_text("0\n")
        prefix = {"img_path": str(scene.images), "seg_map_path": str(scene.masks)}
        options = {"data_root": "mine", "data_prefix": prefix}
        assert len(scene.dataset(**options, ann_file="list.txt")) == 1
        told = refused(scene, **options, ann_file="mine/list.txt")
        assert "mine/list.txt does exist, but ann_file counts from data_root='mine'" in told


class TestFiles:
    def test_bad_files_are_named(self, scene: Scene):
        cut(scene.images / "0.jpg")
        cut(scene.masks / "1.png", 0.5)
        told = refused(scene)
        assert "0.jpg: cut short" in told
        assert "1.png: " in told
        assert "2.png" not in told
        dataset = scene.dataset(on_error="skip")
        assert len(dataset) == 1
        assert [os.path.basename(path) for path, _ in dataset.skipped] == ["0.jpg", "1.png"]
        for path in scene.images.iterdir():
            path.write_bytes(b"")
        assert "not a single sample is good" in refused(scene, on_error="skip")

    def test_sizes_must_agree(self, scene: Scene):
        picture(WIDTH + 1, HEIGHT).save(scene.images / "0.jpg")
        expected = (
            "0.jpg: the picture is 25 x 16 pixels, but 24 x 16 is the size of its label image"
        )
        for check in ("decode", "header"):
            assert expected in refused(scene, check=check)
        dataset = scene.dataset(check="none", pipeline=LOADING)
        with pytest.raises(SampleError, match=r"0\.jpg: .* size of its label image .*0\.png"):
            dataset[0]
        with pytest.raises(SampleError, match=r"0\.png: it is 24 x 16 pixels, but .* is 25 x 16"):
            LoadMask()({**dataset.get_data_info(0), "ori_shape": (16, 25)})

    @pytest.mark.parametrize("stored_upright", [True, False])
    def test_a_photo_on_its_side_and_its_label_image(self, scene: Scene, stored_upright: bool):
        exif = Image.Exif()
        exif[0x0112] = 6
        picture(WIDTH, HEIGHT).save(scene.images / "0.jpg", exif=exif.tobytes())
        size = (HEIGHT, WIDTH) if stored_upright else (WIDTH, HEIGHT)
        scene.add("0", stripes(0, 1, 2, width=size[0], height=size[1]), image=None)
        got = scene.dataset(pipeline=LOADING)[0]
        assert got["img"].shape[:2] == got["gt_seg_map"].shape == size[::-1]

    @pytest.mark.parametrize(
        "orientation, side, is_open", [(3, WIDTH, True), (6, HEIGHT, True), (6, WIDTH, False)]
    )
    def test_turned_pictures_that_sizes_do_not_settle(
        self, scene: Scene, monkeypatch, orientation: int, side: int, is_open: bool
    ):
        exif = Image.Exif()
        exif[0x0112] = orientation
        labels = stripes(0, 1, 2, width=side)
        scene.add("0", labels)
        picture(side, HEIGHT).save(scene.images / "0.jpg", exif=exif.tobytes())
        for check in ("decode", "header"):
            _, told = scene.said(monkeypatch, check=check)
            assert ("1 pictures are turned by their EXIF orientation" in told) == is_open
        assert not scene.said(monkeypatch, pipeline=[LoadImage(exif=False)])[1]
        assert not scene.said(monkeypatch, check="none")[1]
        Image.fromarray(labels).save(scene.masks / "0.png", exif=exif.tobytes())
        if side != WIDTH or orientation == 3:
            assert not scene.said(monkeypatch)[1]  # the label image is turned itself

    def test_values_outside_of_the_classes(self, scene: Scene):
        scene.add("0", stripes(0, 1, 7))
        told = refused(scene)
        assert "0.png: a value that is no class: 7 (128 pixels); allowed: 0..2 for the 3" in told
        dataset = scene.dataset(check="header", pipeline=LOADING)
        with pytest.raises(SampleError, match=r"0\.png: a value that is no class: 7"):
            dataset[0]
        with pytest.raises(SampleError, match=r"no class: 7 .*ignore_values=\(7,\) ignores it"):
            dataset.read_mask(0)
        assert len(scene.dataset(on_error="skip")) == 2
        assert scene.dataset(ignore_values=(7,)).read_mask(0)[0, -1] == 255

    def test_a_bad_sample_is_replaced_in_training_only(self, scene: Scene):
        scene.add("0", stripes(0, 1, 7))
        options = {"check": "none", "on_error": "skip", "pipeline": LOADING}
        assert scene.dataset(**options)[0]["img_id"] == "1"
        with pytest.raises(SampleError, match="no class: 7"):
            scene.dataset(**options, test_mode=True)[0]

    def test_check_by_headers_decodes_what_has_no_end(self, scene: Scene):
        cut(scene.masks / "1.png", 0.5)
        assert "1.png" in refused(scene, check="header")

    def test_how_much_is_checked(self, scene: Scene):
        scene.add("0", stripes(0, 1, 7))
        assert len(scene.dataset(check_limit=2)) == 3
        assert "no class: 7" in refused(scene, check_limit=3)

    def test_many_files_with_unknown_values(self, scene: Scene, monkeypatch):
        for i in range(12):
            scene.add(f"x{i:02d}", stripes(0, 7 + i % 2, 1))
        told = refused(scene)
        assert "bad files (12) of 15" in told
        assert told.count("a value that is no class") == 10
        assert "… and 2 more" in told
        summary = "values that are no class: 7 in 6 files, 8 in 6 files; if that is no class, "
        assert f"{summary}ignore_values=(7, 8) ignores it" in told
        assert "blended" not in told
        _, told = scene.said(monkeypatch, on_error="skip")
        assert told.count("a value that is no class") == 10
        assert "… and 2 more" in told
        assert summary in told

    def test_pictures_that_resizing_would_make_vanish(self, scene: Scene):
        scene.add("thin", stripes(0, 1, 2, width=3000, height=1))

        class Resizing:
            scale, keep_ratio = (2048, 512), True

            def __init__(self, ratio_range: tuple[float, float] | None = None) -> None:
                self.ratio_range = ratio_range

            def __call__(self, results: dict) -> dict:
                return results

        assert len(scene.dataset(pipeline=[Resizing()], check="header")) == 4  # 0.68 of a pixel
        drawn = Resizing((0.5, 2.0))
        for check in ("decode", "header"):
            told = refused(scene, pipeline=[drawn], check=check)
            assert "thin.jpg: 3000 x 1 pixels are too thin: the pipeline makes the longer" in told
        assert len(scene.dataset(pipeline=[drawn], on_error="skip")) == 3


class TestNumbering:
    def fill(self, scene: Scene, *values: int) -> None:
        for i in range(3):
            scene.add(str(i), stripes(*values))

    def test_classes_numbered_from_one(self, scene: Scene):
        self.fill(scene, 0, 1, 2, 3)
        assert "values reach from 0 to 3 with 3 classes" in refused(scene)
        dataset = scene.dataset(reduce_zero_label=True)
        assert np.unique(dataset.read_mask(0)).tolist() == [0, 1, 2, 255]
        assert "25.0% of the pixels ignored" in dataset.summary()
        self.fill(scene, 1, 2, 3)
        assert "give reduce_zero_label=True" in refused(scene)

    def test_zero_label_is_suspected(self, scene: Scene, monkeypatch):
        _, told = scene.said(monkeypatch, reduce_zero_label=True)
        assert "classes without a pixel: car (0 is ignored and 'car' is value 3" in told

    def test_two_classes_as_black_and_white(self, scene: Scene):
        self.fill(scene, 0, 255)
        told = refused(scene, classes=("no", "yes"))
        assert "255 means ignored, so there is nothing of 'yes'" in told
        assert "label_values=(0, 255)" in told
        dataset = scene.dataset(classes=("no", "yes"), label_values=(0, 255))
        np.testing.assert_array_equal(dataset.read_mask(0), stripes(0, 1))
        assert scene.dataset(classes=("no", "yes"), test_mode=True)
        told = refused(scene)
        assert "nothing of the other classes; if 255 stands for a class, give two classes" in told
        self.fill(scene, 1, 255)
        assert "nothing of 'no'" in refused(scene, classes=("no", "yes"))
        scene.add("1", stripes(0, 1))
        assert len(scene.dataset(classes=("no", "yes"))) == 3

    def test_label_images_without_any_class(self, scene: Scene):
        self.fill(scene, 255)
        told = refused(scene)
        assert "every pixel of the 3 label images is 255 (ignored): nothing to learn" in told
        assert scene.dataset(test_mode=True)
        assert scene.dataset(check="header")
        self.fill(scene, 0)
        told = refused(scene, reduce_zero_label=True)
        assert "3 label images is ignored: nothing to learn; allowed: 1..3 for the 3" in told

    def test_values_spread_over_the_grays(self, scene: Scene):
        self.fill(scene, 0, 128, 255)
        assert "give label_values=(0, 128, 255)" in refused(scene)

    def test_absent_classes_are_told(self, scene: Scene, monkeypatch):
        self.fill(scene, 0, 1)
        _, told = scene.said(monkeypatch)
        assert told.endswith("classes without a pixel: car")
        assert not scene.said(monkeypatch, test_mode=True)[1]  # no warning, but a line
        lines: list[str] = []
        where = "polaformer.datasets.segmentation.print_log"
        monkeypatch.setattr(where, lambda text, **_: lines.append(text))
        scene.dataset(test_mode=True)
        assert lines[-1].endswith(
            f"{scene.images}: classes without a pixel: car; a prediction of them counts as IoU 0"
        )
        assert not scene.said(monkeypatch, check="header")[1]

    def test_classes_left_by_a_recipe_for_other_data(self, scene: Scene, monkeypatch):
        _, told = scene.said(monkeypatch, classes="ade20k")
        assert "148 of 150; is this the data set you mean? Own names are classes = (" in told
        assert "reduce_zero_label" not in told

    def test_coloured_label_images(self, scene: Scene):
        colors = [(0, 0, 0), (128, 64, 128), (0, 0, 142)]
        coloured = np.array(colors, np.uint8)[stripes(0, 1, 2)]
        for i in range(3):
            Image.fromarray(coloured).save(scene.masks / f"{i}.png")
        assert "label_colors=[(r, g, b), …]" in refused(scene)
        dataset = scene.dataset(label_colors=colors)
        np.testing.assert_array_equal(dataset.read_mask(0), stripes(0, 1, 2))
        assert dataset.metainfo["palette"] == tuple(colors)
        told = refused(scene, label_colors=[*colors[:2], (0, 0, 140)])
        assert "(0, 0, 142) (128 pixels, nearest (0, 0, 140) = car)" in told

    def test_jpeg_is_told_even_where_its_values_fit(self, scene: Scene, monkeypatch):
        (scene.masks / "0.png").unlink()
        scene.add("0", stripes(1, 1), image=None, mask=".jpg")
        for check in ("decode", "header"):
            _, told = scene.said(monkeypatch, check=check, test_mode=True)
            assert "1 label images are JPEG, which changes values on saving" in told

    def test_converted_cityscapes(self, tmp_path: Path):
        scene = Scene(tmp_path, 0)
        for end, values in {"labelIds": (7, 0, 33), "labelTrainIds": (0, 255, 18)}.items():
            scene.add("a", stripes(*values), image=None, mask=f"_gtFine_{end}.png")
        picture().save(tmp_path / "masks" / "a_leftImg8bit.png")
        (tmp_path / "images").mkdir()
        (tmp_path / "masks" / "a_leftImg8bit.png").rename(tmp_path / "images/a_leftImg8bit.png")
        for end in (None, "labelIds", "labelTrainIds"):
            suffix = None if end is None else f"_gtFine_{end}.png"
            dataset = scene.dataset(classes="cityscapes", seg_map_suffix=suffix)
            np.testing.assert_array_equal(dataset.read_mask(0), stripes(0, 255, 18))
        told = refused(scene, classes="cityscapes", img_suffix="", seg_map_suffix="")
        assert "not a single image has a label image of its name" in told


class TestClasses:
    def test_known_sets_bring_their_rule_and_own_names_none(self, scene: Scene):
        ade = scene.dataset(classes="ade20k")
        assert len(ade.classes) == len(ade.metainfo["palette"]) == 150
        assert np.unique(ade.read_mask(0)).tolist() == [0, 1, 255]
        own = scene.dataset(classes=ade.classes)
        assert np.unique(own.read_mask(0)).tolist() == [0, 1, 2]

    def test_metainfo_means_the_same(self, scene: Scene):
        meta = {"classes": NAMES, "palette": [[1, 2, 3]] * 3, "task": "roads"}
        dataset = scene.dataset(classes=None, metainfo=meta)
        assert dataset.metainfo == {**meta, "palette": ((1, 2, 3),) * 3}
        assert scene.dataset(classes=None, metainfo={"classes": "ade20k"}).classes[0] == "wall"
        assert "differ; give one" in refused(scene, metainfo={"classes": ("x",)})

    @pytest.mark.parametrize(
        "options, told",
        [
            ({"classes": None}, "needs classes"),
            ({"classes": "ade20"}, "did you mean 'ade20k'?"),
            ({"classes": ("a", "a")}, "names a more than once"),
            ({"classes": ()}, "classes is empty"),
            ({"classes": [str(i) for i in range(256)]}, "256 classes are too many"),
            ({"palette": [(0, 0, 0)]}, "1 colours for 3 classes"),
            ({"reduce_zero_label": True, "label_values": (1, 2, 3)}, "both say which value"),
            ({"on_error": "skipp"}, "did you mean 'skip'?"),
            ({"check": "all"}, "allowed: auto, decode, header, none"),
        ],
    )
    def test_wrong_options(self, scene: Scene, options: dict, told: str):
        assert told in refused(scene, **options)


class TestPipeline:
    def test_loading_by_others_or_too_late_is_refused(self, scene: Scene):
        told = refused(scene, pipeline=[{"type": "mmseg.LoadAnnotations"}])
        assert "take dict(type='polaformer.LoadMask')" in told

        class RandomFlip:
            def __call__(self, results: dict) -> dict:
                return results

        steps = [LoadImage(), RandomFlip(), LoadMask()]
        assert "LoadMask after RandomFlip" in refused(scene, pipeline=steps)
        assert scene.dataset(pipeline=steps, test_mode=True)[0]["gt_seg_map"].any()

    def test_without_a_label_image(self):
        with pytest.raises(SampleError, match=r"LoadMask: there is no label image for x\.jpg"):
            LoadMask()({"img_path": "x.jpg"})
        without = {"img_path": "x.jpg", "label_coding": None}
        assert LoadMask()(dict(without)) == without
        assert repr(LoadMask()) == "LoadMask()"

    def test_failures_name_the_picture(self, scene: Scene):
        def fail(results: dict) -> dict:
            raise ZeroDivisionError("no reason")

        dataset = scene.dataset(pipeline=[LoadImage(), fail])
        with pytest.raises(SampleError, match=r"0\.jpg \(24 x 16 pixels\): ZeroDivisionError"):
            dataset[0]

    def test_under_the_transforms_of_mmseg(self, scene: Scene):
        pytest.importorskip("mmseg.datasets.transforms")
        from mmengine.registry import DefaultScope

        colours = stripes(0, 60, 120)
        for i in range(3):  # the picture shows its labels, so that their places can be compared
            scene.add(str(i), stripes(0, 1, 255 if i == 2 else 2), image=None)
            Image.fromarray(np.dstack([colours] * 3)).save(scene.images / f"{i}.jpg", quality=100)
        steps = [
            {"type": "polaformer.LoadImage"},
            {"type": "polaformer.LoadMask"},
            {
                "type": "RandomResize",
                "scale": (96, 64),
                "ratio_range": (0.5, 2.0),
                "keep_ratio": True,
            },
            {"type": "RandomCrop", "crop_size": (32, 32), "cat_max_ratio": 0.75},
            {"type": "RandomFlip", "prob": 0.5},
            {"type": "PackSegInputs"},
        ]
        np.random.seed(0)
        with DefaultScope.overwrite_default_scope("mmseg"):
            dataset = scene.dataset(pipeline=steps)
            steps.insert(5, {"type": "PhotoMetricDistortion"})
            distorted = scene.dataset(pipeline=steps)[0]
        assert isinstance(dataset, SegmentationDataset)
        for i in (*range(3), *range(3)):
            packed = dataset[i]
            labels = packed["data_samples"].gt_sem_seg.data[0].numpy()
            image = packed["inputs"][0].numpy()
            assert labels.shape == image.shape
            inner = labels == np.roll(labels, 2, 1)  # away from edges, which are blurred
            inner &= labels == np.roll(labels, -2, 1)
            for label, gray in {0: 0, 1: 60, 2: 120, 255: 120}.items():
                seen = image[(labels == label) & inner]
                assert not seen.size or abs(seen.mean() - gray) < 8
            assert set(np.unique(labels)) <= ({0, 1, 255} if i == 2 else {0, 1, 2})
        assert distorted["data_samples"].img_path.endswith("0.jpg")
        assert distorted["data_samples"].seg_map_path.endswith("0.png")
        assert distorted["data_samples"].reduce_zero_label is False
