"""AP of boxes and masks: known values, the reference, odd files, any number of processes."""

from __future__ import annotations

import copy
import json
import math

import numpy as np
import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp

pytest.importorskip("pycocotools")

from pycocotools import mask as coco_mask
from pycocotools.coco import COCO
from pycocotools.cocoeval import COCOeval

from polaformer.errors import UserError
from polaformer.evaluation import CocoMetric
from polaformer.registry import METRICS

SIZE = (96, 128)
ONE = pytest.approx(1, abs=1e-12)
"""AP of a perfect result: pycocotools adds the smallest number to a divisor."""
NAMES = ("mAP", "mAP_50", "mAP_75", "mAP_s", "mAP_m", "mAP_l")
CATEGORIES = [{"id": 7, "name": "cat"}, {"id": 3, "name": "dog"}, {"id": 90, "name": "bird"}]


def corners(box) -> list[float]:
    x, y, w, h = box
    return [x, y, x + w, y, x + w, y + h, x, y + h]


def annotation(number, image, category, box, **more) -> dict:
    made = {"id": number, "image_id": image, "category_id": category, "bbox": list(box)}
    made |= {"area": box[2] * box[3], "iscrowd": 0, "segmentation": [corners(box)]}
    return made | more


def content() -> dict:
    """Three pictures with ids out of order and with gaps, three categories likewise."""
    return {
        "images": [
            {"id": number, "file_name": f"{number}.png", "height": SIZE[0], "width": SIZE[1]}
            for number in (500, 2, 31)
        ],
        "categories": copy.deepcopy(CATEGORIES),
        "annotations": [
            annotation(0, 500, 7, (10, 10, 20, 20)),
            annotation(5, 500, 3, (50, 40, 40, 40)),
            annotation(3, 2, 90, (0, 0, 30, 50)),
            annotation(9, 31, 7, (60, 20, 25, 30)),
            annotation(11, 31, 3, (5, 60, 30, 20)),
        ],
    }


@pytest.fixture
def write(tmp_path):
    def written(made: dict, name: str = "val.json") -> str:
        path = tmp_path / name
        path.write_text(json.dumps(made))
        return str(path)

    return written


def metric(path: str, **options) -> CocoMetric:
    made = CocoMetric(**options)
    classes, ids = zip(*((c["name"], c["id"]) for c in CATEGORIES), strict=True)
    made.dataset_meta = {"classes": classes, "category_ids": ids, "ann_file": path}
    return made


def found(image, boxes=(), labels=(), scores=(), masks=None) -> dict:
    """A data sample as the evaluator hands it on; boxes are x, y, width, height."""
    boxes = torch.tensor(boxes, dtype=torch.float32).reshape(-1, 4)
    boxes[:, 2:] += boxes[:, :2]
    instances = {
        "bboxes": boxes,
        "scores": torch.tensor(scores, dtype=torch.float32),
        "labels": torch.tensor(labels, dtype=torch.int64),
    }
    if masks is not None:
        instances["masks"] = masks
    return {"img_id": image, "ori_shape": SIZE, "pred_instances": instances}


def raster(box) -> np.ndarray:
    return coco_mask.decode(coco_mask.frPyObjects([corners(box)], *SIZE))[..., 0].astype(bool)


def truth_as_predictions(made: dict, shift=(0, 0)) -> list[dict]:
    samples = []
    labels = {c["id"]: i for i, c in enumerate(CATEGORIES)}
    for image in made["images"]:
        own = [a for a in made["annotations"] if a["image_id"] == image["id"]]
        own = [a for a in own if not a["iscrowd"]]
        boxes = [[a["bbox"][0] + shift[0], a["bbox"][1] + shift[1], *a["bbox"][2:]] for a in own]
        masks = torch.tensor(np.array([raster(box) for box in boxes])).reshape(-1, *SIZE)
        names = [labels[a["category_id"]] for a in own]
        samples.append(found(image["id"], boxes, names, [1.0] * len(own), masks))
    return samples


def reference(path: str, rows: list[dict], kind: str, max_dets=(1, 10, 100)) -> np.ndarray:
    """A direct call of pycocotools; the twelve figures of its summary."""
    truth = COCO(path)
    judge = COCOeval(truth, truth.loadRes(copy.deepcopy(rows)), kind)
    judge.params.maxDets = list(max_dets)
    judge.evaluate()
    judge.accumulate()
    judge.summarize()
    return judge.stats


def test_truth_as_predictions_is_1_for_each_class_under_its_own_name(write):
    made = content()
    judge = metric(write(made), metric=("bbox", "segm"))
    judge.process({}, truth_as_predictions(made))
    results = judge.evaluate(3)
    assert next(iter(results)) == "bbox_mAP"
    for kind in ("bbox", "segm"):
        for name in NAMES[:4]:
            assert results[f"{kind}_{name}"] == ONE
        assert f"{kind}_mAP_l" not in results
        per_class = {n: row[f"{kind}_mAP"] for n, row in judge.last["per_class"].items()}
        assert per_class == pytest.approx({"cat": 1, "dog": 1, "bird": 1})
    assert (judge.last["num_images"], judge.last["num_objects"]) == (3, 5)
    counts = {n: (row["images"], row["objects"]) for n, row in judge.last["per_class"].items()}
    assert counts == {"cat": (2, 2), "dog": (2, 2), "bird": (1, 1)}
    assert judge.last["recall"]["segm_AR_100"] == 1.0
    assert judge.results == []


def test_each_class_has_its_own_figure(write):
    """Only cats (id 7, the middle one by id) are found; a mix-up of orders would show."""
    made = content()
    samples = truth_as_predictions(made)
    for sample in samples:
        keep = sample["pred_instances"]["labels"] == 0
        sample["pred_instances"] = {k: v[keep] for k, v in sample["pred_instances"].items()}
    judge = metric(write(made))
    judge.process({}, samples)
    assert judge.evaluate(3)["bbox_mAP"] == pytest.approx(1 / 3)
    per_class = judge.last["per_class"]
    figures = {n: row["bbox_mAP"] for n, row in per_class.items()}
    assert figures == pytest.approx({"cat": 1, "dog": 0, "bird": 0})


def test_what_the_data_set_says_of_itself_is_enough(write, tmp_path):
    """Categories 7, 3 and 90 in this order; labels and boxes as the data set gives them."""
    from PIL import Image

    from polaformer.datasets import CocoDataset

    path = write(content())
    for image in content()["images"]:
        Image.new("RGB", SIZE[::-1]).save(tmp_path / image["file_name"])
    data = CocoDataset(path, str(tmp_path), classes=("cat", "dog", "bird"), test_mode=True)
    judge = CocoMetric()
    judge.dataset_meta = data.metainfo
    for position in range(len(data)):
        info = data.get_data_info(position)
        sample = found(info["img_id"])
        objects = info["instances"]
        sample["pred_instances"] = {
            "bboxes": torch.tensor([entry["bbox"] for entry in objects]),
            "labels": torch.tensor([entry["bbox_label"] for entry in objects]),
            "scores": torch.ones(len(objects)),
        }
        judge.process({}, [sample])
    assert judge.evaluate(len(data))["bbox_mAP"] == ONE
    per_class = {n: (row["objects"], row["bbox_mAP"]) for n, row in judge.last["per_class"].items()}
    assert per_class == {"cat": (2, ONE), "dog": (2, ONE), "bird": (1, ONE)}


@pytest.mark.parametrize(("shift", "passed"), [(0, 10), (1, 9), (2, 7), (4, 4), (6, 1), (7, 0)])
def test_a_shifted_square_by_hand(write, shift, passed):
    """20 x 20 shifted by s along x: overlap (20 - s) / (20 + s), which passes k of 10 thresholds.

    0 -> 1, 1 -> 0.905 (to 0.90), 2 -> 0.818 (to 0.80), 4 -> 0.667 (to 0.65), 6 -> 0.538 (0.50),
    7 -> 0.481. The one detection is right or wrong at each threshold, so AP is k / 10.
    """
    made = content()
    made["annotations"] = [annotation(1, 2, 7, (40, 40, 20, 20))]
    judge = metric(write(made), metric=("bbox", "segm"))
    judge.process({}, truth_as_predictions(made, (shift, 0)))
    results = judge.evaluate(3)
    assert results["bbox_mAP"] == pytest.approx(passed / 10)
    assert results["segm_mAP"] == pytest.approx(passed / 10)
    assert judge.last["per_class"]["dog"]["bbox_mAP"] is None


def scattered(made: dict, seed: int = 0, extra: int = 30) -> list[dict]:
    """Moved truth and clutter with many equal scores, masks included."""
    generator = np.random.default_rng(seed)
    samples = []
    labels = {c["id"]: i for i, c in enumerate(CATEGORIES)}

    def moves() -> list[int]:
        return generator.integers(-2, 3, 4).tolist()

    for image in made["images"]:
        own = [a for a in made["annotations"] if a["image_id"] == image["id"]]
        boxes = [[v + m for v, m in zip(a["bbox"], moves(), strict=True)] for a in own]
        names = [labels[a["category_id"]] for a in own]
        boxes += [
            [*generator.uniform(0, 60, 2), *generator.uniform(5, 36, 2)] for _ in range(extra)
        ]
        names += generator.integers(0, 3, extra).tolist()
        scores = generator.integers(1, 9, len(boxes)) / 8
        masks = torch.tensor(np.array([raster(box) for box in boxes]))
        samples.append(found(image["id"], boxes, names, scores.tolist(), masks))
    return samples


@pytest.mark.parametrize("limit", [100, 4])
def test_the_reference_agrees(write, tmp_path, limit):
    made = content()
    made["annotations"][0]["id"] = 1  # the reference itself takes a match with id 0 for none
    path = write(made)
    judge = metric(path, metric=("bbox", "segm"), max_dets=(1, 2, limit))
    judge.process({}, scattered(made))
    results = judge.evaluate(3)
    for file, kind in zip(judge.write_results(tmp_path, None), ("bbox", "segm"), strict=True):
        assert file.name == f"predictions.{kind}.json"
        stats = reference(path, json.loads(file.read_text()), kind, (1, 2, limit))
        for name, value in zip(NAMES, stats, strict=False):
            # pycocotools' own overall figure knows the limit 100 only.
            if not (name == "mAP" and limit != 100):
                assert results.get(f"{kind}_{name}", -1.0) == value
        recalls = [judge.last["recall"][f"{kind}_AR_{n}"] for n in (1, 2, limit)]
        assert recalls == stats[6:9].tolist()
        assert 0.01 < results[f"{kind}_mAP"] < 0.95


def judged_as_the_reference(made: dict, write, tmp_path, kinds=("bbox", "segm"), **meta) -> dict:
    """``last`` of a metric whose every figure is that of pycocotools read from the file itself."""
    path = write(made)
    judge = metric(path, metric=kinds)
    judge.dataset_meta = {**judge.dataset_meta, **meta}
    samples = scattered(content())
    judge.process({}, samples)
    figures = judge.evaluate(3)
    for file, kind in zip(judge.write_results(tmp_path, None), kinds, strict=True):
        stats = reference(path, json.loads(file.read_text()), kind)
        for name, value in zip(NAMES, stats, strict=False):
            assert figures.get(f"{kind}_{name}", -1.0) == value, name
        assert 0.01 < figures[f"{kind}_mAP"] < 0.95
    return judge.last


def test_objects_that_cannot_be_found_count_as_in_the_reference(write, tmp_path, monkeypatch):
    lines = told_by(monkeypatch)
    made = content()
    del made["annotations"][0]
    without = judged_as_the_reference(made, write, tmp_path)
    assert without["num_unreachable"] == 0
    odd = [(20, 20, 0, 30), (30, 20, 10, -5), (300, 10, 20, 20), (40, 10, 20, 0.25)]
    for number, box in enumerate(odd, start=20):
        made["annotations"].append(annotation(number, 2, 7, box, area=abs(box[2] * box[3])))
    crowd = annotation(30, 31, 7, (300, 0, 40, 96), iscrowd=1)
    made["annotations"].append(crowd)
    found = judged_as_the_reference(made, write, tmp_path)
    assert (found["num_objects"], found["num_unreachable"], found["num_crowds"]) == (8, 3, 1)
    cats = [last["per_class"]["cat"] for last in (without, found)]
    assert [row["objects"] for row in cats] == [1, 5]
    assert cats[1]["bbox_mAP"] < cats[0]["bbox_mAP"]
    told = [line for line in lines if "3 of 9 objects have a box without area" in line]
    assert len(told) == 1


@pytest.mark.parametrize("texts", [{500: "500", 2: "2", 31: "31"}, {500: "x", 2: "02", 31: "3.0"}])
def test_results_carry_the_ids_of_the_file(write, tmp_path, monkeypatch, texts):
    """pycocotools reads them beside the file, where "5" is not 5."""
    made = content()
    del made["annotations"][0]
    for entry in made["annotations"]:
        entry |= {"image_id": texts[entry["image_id"]], "category_id": str(entry["category_id"])}
    for entry in made["images"]:
        entry["id"] = texts[entry["id"]]
    for entry in made["categories"]:
        entry["id"] = str(entry["id"])
    seen = {key: int(text) if str(key) == text else text for key, text in texts.items()}
    real = scattered

    def with_ids(made: dict) -> list[dict]:
        return [{**sample, "img_id": seen[sample["img_id"]]} for sample in real(made)]

    monkeypatch.setitem(globals(), "scattered", with_ids)
    judged_as_the_reference(made, write, tmp_path)
    rows = json.loads((tmp_path / "predictions.bbox.json").read_text())
    assert {row["image_id"] for row in rows} == set(texts.values())
    assert {row["category_id"] for row in rows} == {"7", "3", "90"}


def test_more_than_100_detections_of_a_class_count_to_100(write):
    """A hundred better wrong ones push the right one out; with a higher limit it counts."""
    made = content()
    made["annotations"] = [annotation(1, 2, 7, (40, 40, 20, 20))]
    wrong = [[100, 80, 5, 5]] * 100
    sample = found(2, [*wrong, [40, 40, 20, 20]], [0] * 101, [0.9] * 100 + [0.8])
    results = []
    for limits in ((1, 10, 100), (1, 10, 101)):
        judge = metric(write(made), max_dets=limits)
        judge.process({}, [sample])
        results.append(judge.evaluate(1)["bbox_mAP"])
    assert results == [0.0, pytest.approx(1 / 101)]


def test_crowd_regions_neither_count_nor_punish(write):
    made = content()
    run_lengths = {"size": list(SIZE), "counts": [0, 96 * 40, 96 * 88]}
    crowd = annotation(77, 2, 7, (0, 0, 40, 96), iscrowd=1, segmentation=run_lengths, area=96 * 40)
    made["annotations"].append(crowd)
    samples = truth_as_predictions(made)
    inside = found(
        2,
        [[0, 0, 30, 50], [3, 60, 20, 20]],
        [2, 0],
        [1, 1],
        torch.tensor(np.array([raster((0, 0, 30, 50)), raster((3, 60, 20, 20))])),
    )
    judge = metric(write(made), metric=("bbox", "segm"))
    judge.process({}, [samples[0], inside, samples[2]])
    results = judge.evaluate(3)
    assert (results["bbox_mAP"], results["segm_mAP"]) == (ONE, ONE)
    assert (judge.last["num_objects"], judge.last["num_crowds"]) == (5, 1)
    assert judge.last["per_class"]["cat"]["objects"] == 2


def told_by(monkeypatch, *modules: str) -> list[str]:
    lines: list[str] = []
    for module in modules or ("coco",):
        monkeypatch.setattr(
            f"polaformer.evaluation.{module}.print_log", lambda *a, **k: lines.append(a[0])
        )
    return lines


def test_no_prediction_at_all_is_0_and_said(write, monkeypatch, tmp_path):
    lines = told_by(monkeypatch)
    judge = metric(write(content()), metric=("bbox", "segm"))
    empty = torch.zeros(0, *SIZE, dtype=torch.bool)
    judge.process({}, [found(n, masks=empty) for n in (2, 31, 500)])
    results = judge.evaluate(3)
    assert (results["bbox_mAP"], results["segm_mAP_50"]) == (0.0, 0.0)
    assert any("not one detection in 3 pictures" in line for line in lines)
    assert [p.read_text() for p in judge.write_results(tmp_path, None)] == ["[]\n", "[]\n"]


def test_pictures_without_any_object_have_no_figure(write, monkeypatch):
    """As a test set whose annotations are not public."""
    made = content()
    made["annotations"] = []
    lines = told_by(monkeypatch)
    judge = metric(write(made), metric=("bbox", "segm"))
    judge.process({}, truth_as_predictions(content()))
    assert judge.evaluate(3) == {}
    assert judge.last["per_class"]["cat"] == {
        "images": 0,
        "objects": 0,
        "bbox_mAP": None,
        "bbox_mAP_50": None,
        "segm_mAP": None,
        "segm_mAP_50": None,
    }
    assert any("has no object in the 3 pictures" in line for line in lines)


def test_what_is_left_out_is_said_once(write, monkeypatch):
    lines = told_by(monkeypatch)
    made = content()
    judge = metric(write(made))
    for _ in range(2):
        judge.process({}, truth_as_predictions(made))
        judge.evaluate(3)
    assert lines == ["bbox_mAP_l left out, since no object is of this kind"]


def test_only_pictures_that_were_seen_and_categories_that_are_trained_count(write, monkeypatch):
    lines = told_by(monkeypatch, "base")
    made = content()
    judge = metric(write(made))
    judge.dataset_meta = {**judge.dataset_meta, "classes": ("bird",), "category_ids": (90,)}
    judge.process({}, [found(2, [[0, 0, 30, 50]], [0], [0.5])])
    assert judge.evaluate(3)["bbox_mAP"] == ONE
    assert (judge.last["num_images"], judge.last["num_objects"]) == (1, 1)
    assert lines == ["CocoMetric over 1 samples, but the data set has 3"]


def test_a_picture_seen_twice_counts_once(write):
    made = content()
    judge = metric(write(made))
    samples = truth_as_predictions(made)
    judge.process({}, [*samples, samples[0]])
    assert judge.evaluate(3)["bbox_mAP"] == ONE


def test_two_pictures_with_one_id_are_not_taken_for_one(write):
    """As in a data set joined of two whose files number their pictures alike."""
    made = content()
    judge = metric(write(made))
    samples = [{**one, "img_path": f"a/{one['img_id']}.png"} for one in truth_as_predictions(made)]
    judge.process({}, [*samples, {**samples[0], "img_path": "b/500.png"}])
    with pytest.raises(UserError, match=r"two pictures have the id 500: a/500.png and b/500.png;"):
        judge.evaluate(4)
    judge.process({}, [*samples, {**samples[0], "ori_shape": (50, 60)}])
    with pytest.raises(UserError, match="validate each by itself"):
        judge.evaluate(4)
    judge.process({}, [*samples, samples[0]])
    assert judge.evaluate(4)["bbox_mAP"] == ONE


def test_pictures_of_several_sizes_in_one_batch_are_said_once(write, monkeypatch):
    lines = told_by(monkeypatch)
    judge = metric(write(content()))
    one, two = ({**found(n), "img_shape": shape} for n, shape in ((2, (96, 128)), (31, (64, 128))))
    for batch in ([one], [two], [one, one], [{**one, "img_shape": torch.Size((96, 128))}, one]):
        judge.process({}, batch)
    assert lines == []
    judge.process({}, [one, two])
    judge.process({}, [two, one])
    assert len(lines) == 1
    assert "batch_size=1" in lines[0]


def test_detections_that_are_not_finite_do_not_count(write, monkeypatch):
    lines = told_by(monkeypatch)
    made = content()
    samples = truth_as_predictions(made)
    broken = found(
        2, [[0, 0, 30, 50], [math.nan, 0, 1, 1], [0, 0, 9, 9]], [2, 2, 2], [1, 1, math.inf]
    )
    judge = metric(write(made))
    judge.process({}, [samples[0], broken, samples[2]])
    assert judge.evaluate(3)["bbox_mAP"] == ONE
    assert judge.last["non_finite"] == 1
    assert any("2 detections are not finite" in line for line in lines)


@pytest.mark.parametrize("ids", ["text", "mixed", "digits"])
def test_ids_that_are_text(write, ids):
    made = content()
    other = {500: "b", 2: "a", 31: 31 if ids == "mixed" else "c"}
    if ids == "digits":
        other = {500: "500", 2: "2", 31: "31"}
    for image in made["images"]:
        image["id"] = other[image["id"]]
    for entry in made["annotations"]:
        entry["image_id"] = other[entry["image_id"]]
    samples = truth_as_predictions(made)
    for sample in samples:
        if ids == "digits":
            sample["img_id"] = int(sample["img_id"])
    judge = metric(write(made))
    judge.process({}, samples)
    assert judge.evaluate(3)["bbox_mAP"] == ONE


def test_the_size_class_of_a_mask_is_that_of_the_mask(write):
    """A thin diagonal in a box of 60 x 60: small as a mask, medium as a box."""
    made = content()
    line = [10, 10, 14, 10, 70, 66, 70, 70, 66, 70, 10, 14]
    made["annotations"] = [annotation(1, 2, 7, (10, 10, 60, 60), segmentation=[line], area=464)]
    mask = coco_mask.decode(coco_mask.frPyObjects([line], *SIZE)).transpose(2, 0, 1)
    assert 300 < mask.sum() < 32**2
    judge = metric(write(made), metric="segm")
    extra = np.concatenate([mask, mask[:, ::-1]])
    judge.process({}, [found(2, [[10, 10, 60, 60]] * 2, [0, 0], [0.5, 0.9], extra)])
    results = judge.evaluate(1)
    # The wrong one is small as well and stands before the right one.
    assert results == dict.fromkeys([f"segm_{name}" for name in NAMES[:4]], 0.5)


class Bitmaps:
    """Like mmdet's BitmapMasks."""

    def __init__(self, masks: np.ndarray) -> None:
        self.masks = masks

    def to_ndarray(self) -> np.ndarray:
        return self.masks


@pytest.mark.parametrize("form", ["tensor", "uint8", "bitmaps", "run lengths"])
def test_masks_come_in_any_form(write, form):
    made = content()
    samples = truth_as_predictions(made)
    for sample in samples:
        masks = sample["pred_instances"]["masks"]
        array = masks.numpy().astype(np.uint8)
        sample["pred_instances"]["masks"] = {
            "tensor": masks,
            "uint8": array,
            "bitmaps": Bitmaps(array),
            "run lengths": [coco_mask.encode(np.asfortranarray(mask)) for mask in array],
        }[form]
    judge = metric(write(made), metric="segm")
    judge.process({}, samples)
    assert all(isinstance(entry.masks, list) for entry in judge.results)
    assert judge.evaluate(3)["segm_mAP"] == ONE


def test_objects_without_a_mask_are_neither_found_nor_missed(write, monkeypatch):
    lines = told_by(monkeypatch)
    made = content()
    del made["annotations"][0]["segmentation"]
    made["annotations"][4]["segmentation"] = [[5, 60, 35, 60]]
    judge = metric(write(made), metric="segm")
    samples = truth_as_predictions(made)
    judge.process({}, samples)
    assert judge.evaluate(3)["segm_mAP"] == ONE
    assert "segm: 2 of 5 objects have no usable mask and do not count" in lines
    # Neither a detection in its box nor a missing one makes a difference.
    for boxes in ([[12, 12, 10, 10]], []):
        own = [*boxes, [50, 40, 40, 40]]
        labels = [0] * len(boxes) + [1]
        masks = torch.tensor(np.array([raster(box) for box in own]))
        judge.process({}, [found(500, own, labels, [1.0] * len(own), masks), *samples[1:]])
        assert judge.evaluate(3)["segm_mAP"] == ONE
    judge.process({}, [found(n, masks=[]) for n in (2, 31, 500)])
    assert judge.evaluate(3)["segm_mAP"] == 0.0


def test_a_file_without_any_mask_cannot_judge_masks(write):
    made = content()
    for entry in made["annotations"]:
        del entry["segmentation"]
    judge = metric(write(made), metric="segm")
    judge.process({}, truth_as_predictions(made))
    with pytest.raises(UserError, match=r"no object in .*val.json has a usable segmentation"):
        judge.evaluate(3)


def test_a_model_without_masks_is_told(write):
    judge = metric(write(content()), metric=("bbox", "segm"))
    with pytest.raises(UserError, match="predicts no masks; use metric='bbox'"):
        judge.process({}, [found(2, [[0, 0, 9, 9]], [0], [0.5])])


def test_more_classes_than_the_data_has(write):
    judge = metric(write(content()))
    judge.process({}, [found(2, [[0, 0, 9, 9]], [3], [0.5])])
    with pytest.raises(UserError, match="class number 3, but the data set has 3 classes"):
        judge.evaluate(1)


def test_samples_that_do_not_say_enough(write):
    judge = metric(write(content()))
    with pytest.raises(UserError, match="must list 'img_id'"):
        judge.process({}, [{"pred_instances": {}}])
    with pytest.raises(UserError, match=r"needs detections .*the model gives img_id, scores"):
        judge.process({}, [{"img_id": 2, "scores": [1]}])
    with pytest.raises(UserError, match="no picture was evaluated"):
        judge.evaluate(0)
    judge.process({}, [found(4, [[0, 0, 9, 9]], [0], [0.5])])
    with pytest.raises(UserError, match=r"1 of 1 predicted pictures are not in .* \(ids 4\)"):
        judge.evaluate(1)
    judge.dataset_meta = {"classes": ("cat",)}
    judge.process({}, [found(2)])
    with pytest.raises(UserError, match=r"knows no annotation file"):
        judge.evaluate(1)


def test_another_file_is_matched_by_names(write):
    made = content()
    path = write(made)
    other = copy.deepcopy(made)
    renumbered = {7: 1, 3: 2, 90: 3}
    for entry in other["categories"]:
        entry["id"] = renumbered[entry["id"]]
    for entry in other["annotations"]:
        entry["category_id"] = renumbered[entry["category_id"]]
    judge = metric(path, ann_file=write(other, "other.json"))
    judge.process({}, truth_as_predictions(made))
    assert judge.evaluate(3)["bbox_mAP"] == ONE
    other["categories"][2]["name"] = "Bird"
    judge = metric(path, ann_file=write(other, "third.json"))
    judge.process({}, truth_as_predictions(made))
    with pytest.raises(UserError, match=r"class 'bird' is not in .*did you mean 'Bird'"):
        judge.evaluate(3)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"metric": "bbbox"}, "did you mean 'bbox'"),
        ({"metric": ()}, "metric is empty"),
        ({"max_dets": (0, 10)}, "max_dets"),
        ({"max_dets": 100}, "max_dets"),
        ({"iou_thrs": (0.5, 2)}, "iou_thrs"),
        ({"iou_thrs": 0.5}, "iou_thrs"),
    ],
)
def test_wrong_options(options, text):
    with pytest.raises(UserError, match=text):
        CocoMetric(**options)


def test_options(write, capsys):
    made = content()
    judge = METRICS.build(
        dict(type="polaformer.CocoMetric", prefix="val", iou_thrs=[0.6], classwise=False)
    )
    judge.dataset_meta = metric(write(made)).dataset_meta
    judge.process({}, truth_as_predictions(made, (1, 0)))
    results = judge.evaluate(3)
    assert results["val/bbox_mAP"] == ONE
    assert "val/bbox_mAP_50" not in results
    assert judge.last["per_class"] == {}
    assert capsys.readouterr().out == ""


def _one_process(rank: int, port: int, world: int, path: str, results) -> None:
    address = f"tcp://127.0.0.1:{port}"
    dist.init_process_group("gloo", init_method=address, rank=rank, world_size=world)
    samples = scattered(content())
    # Shares are uneven; in the larger world one process has nothing and one picture comes twice.
    mine = {2: ([2], [1, 0]), 3: ([1, 2], [], [0, 2])}[world][rank]
    judge = metric(path, metric=("bbox", "segm"))
    judge.process({}, [samples[i] for i in mine])
    figures = judge.evaluate(3)
    wrong = metric(path)
    wrong.process({}, [found(4, [[0, 0, 9, 9]], [0], [0.5])])
    try:
        wrong.evaluate(1)
    except UserError as error:
        results[rank] = (figures, judge.last, str(error))
    dist.destroy_process_group()


@pytest.mark.slow
@pytest.mark.parametrize("world", [2, 3])
def test_any_number_of_processes_gives_the_same_to_the_last_bit(write, world):
    import socket

    path = write(content())
    alone = metric(path, metric=("bbox", "segm"))
    alone.process({}, scattered(content()))
    figures = alone.evaluate(3)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with mp.Manager() as manager:
        results = manager.dict()
        mp.spawn(_one_process, args=(port, world, path, results), nprocs=world)
        assert len(results) == world
        for told, last, error in results.values():
            assert told == figures
            assert last == alone.last
            assert "are not in" in error
