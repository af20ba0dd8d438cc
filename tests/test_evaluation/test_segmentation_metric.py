"""Overlap of class maps: known values, an independent library, odd maps, numbers of processes."""

from __future__ import annotations

import json
import math
import socket
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from mmengine.evaluator import Evaluator
from mmengine.structures import BaseDataElement, PixelData
from PIL import Image
from sklearn.metrics import confusion_matrix, f1_score, jaccard_score, recall_score

from polaformer.config.metrics import metric_names
from polaformer.errors import UserError
from polaformer.evaluation import SegmentationMetric, segmentation, segmentation_counts
from polaformer.evaluation.label_images import safe_names
from polaformer.registry import METRICS

CLASSES = ("wall", "sky", "tree")
PALETTE = [(120, 120, 120), (6, 230, 230), (4, 200, 3)]


def metric(classes=CLASSES, palette=PALETTE, **options) -> SegmentationMetric:
    made = SegmentationMetric(**options)
    made.dataset_meta = {"classes": classes, "palette": palette}
    return made


def sample(predicted, truth, name="a", **more) -> dict:
    """A data sample as mmengine's evaluator hands it on; maps are lists of rows."""
    return {
        "img_id": name,
        "img_path": f"/data/{name}.jpg",
        "pred_sem_seg": {"data": torch.as_tensor(predicted)[None]},
        "gt_sem_seg": {"data": torch.as_tensor(truth)[None]},
        **more,
    }


def evaluated(*samples, classes=CLASSES, **options) -> tuple[dict, dict]:
    made = metric(classes, **options)
    for one in samples:
        made.process({}, [one])
    return made.evaluate(len(samples)), made.last


# Raw labels [[0, 1, 1, 2], [2, 3, 255, 1]] with 0 ignored and the others one lower.
TRUTH = [[255, 0, 0, 1], [1, 2, 255, 0]]
PREDICTED = [[0, 0, 1, 1], [1, 2, 0, 0]]


def test_reduced_labels_with_ignored_pixels():
    results, last = evaluated(sample(PREDICTED, TRUTH))
    assert list(results) == ["mIoU", "mAcc", "aAcc", "mDice"]
    shown = {name: round(value, 2) for name, value in results.items()}
    assert shown == {"mIoU": 77.78, "mAcc": 88.89, "aAcc": 83.33, "mDice": 86.67}
    assert {name: round(row["IoU"], 2) for name, row in last["per_class"].items()} == {
        "wall": 66.67,
        "sky": 66.67,
        "tree": 100.0,
    }
    assert last["confusion"] == [[2, 1, 0], [0, 2, 0], [0, 0, 1]]
    assert (last["num_images"], last["num_pixels"], last["num_ignored"]) == (1, 6, 2)


def test_labels_reduced_twice_score_nothing():
    """255 -> 254 -> … would not be seen here: what is left of the classes 0 to 2 is wrong."""
    twice = [[255, 255, 255, 0], [0, 1, 255, 255]]
    results, _ = evaluated(sample(PREDICTED, twice))
    assert results["mIoU"] == results["aAcc"] == 0.0


def test_by_hand_over_two_images():
    """Pixels add up over images; the mean over images of their IoU would be another number."""
    one = sample([[0, 0, 0, 0]], [[0, 0, 0, 1]], "a")  # wall 3 / 4, sky 0 / 1
    two = sample([[1, 1], [1, 0]], [[1, 1], [1, 1]], "b")  # sky 3 / 4, wall 0 / 1
    results, last = evaluated(one, two)
    assert last["confusion"] == [[3, 0, 0], [2, 3, 0], [0, 0, 0]]
    wall, sky, tree = last["per_class"].values()
    assert wall == {"IoU": 60.0, "Acc": 100.0, "Dice": 75.0, "truth": 3, "predicted": 5}
    assert sky == {"IoU": 60.0, "Acc": 60.0, "Dice": 75.0, "truth": 5, "predicted": 3}
    assert tree == {"IoU": None, "Acc": None, "Dice": None, "truth": 0, "predicted": 0}
    assert results == {"mIoU": 60.0, "mAcc": 80.0, "aAcc": 75.0, "mDice": 75.0}


def test_a_class_that_is_only_predicted_has_iou_0_and_no_accuracy():
    results, last = evaluated(sample([[0, 2]], [[0, 0]]))
    assert last["per_class"]["tree"] == {
        "IoU": 0.0,
        "Acc": None,
        "Dice": 0.0,
        "truth": 0,
        "predicted": 1,
    }
    assert results["mIoU"] == 25.0
    assert results["mAcc"] == 50.0


def random_maps(seed: int, classes: int, absent=()) -> tuple[np.ndarray, np.ndarray]:
    """Noisy maps of blocks with a tenth of the pixels ignored."""
    generator = np.random.default_rng(seed)
    present = [number for number in range(classes) if number not in absent]
    truth = generator.choice(present, (7, 9)).repeat(5, 0).repeat(5, 1)
    noise = generator.choice(present, truth.shape)
    predicted = np.where(generator.random(truth.shape) < 0.6, truth, noise)
    truth[generator.random(truth.shape) < 0.1] = 255
    return predicted.astype(np.uint8), truth.astype(np.uint8)


@pytest.mark.parametrize("classes", [2, 7, 150])
def test_an_independent_library_agrees(classes):
    """scikit-learn, over the pixels of all images that are not ignored."""
    absent = (1, 5) if classes > 6 else ()
    maps = [random_maps(seed, classes, absent) for seed in range(5)]
    names = tuple(f"class {number}" for number in range(classes))
    results, last = evaluated(
        *(sample(*pair, f"image {i}") for i, pair in enumerate(maps)), classes=names
    )
    said, true = (np.concatenate([pair[side].ravel() for pair in maps]) for side in (0, 1))
    said, true = said[true != 255], true[true != 255]
    counts = confusion_matrix(true, said, labels=range(classes))
    assert np.array_equal(last["confusion"], counts)
    used = [i for i in range(classes) if counts[i].sum() or counts[:, i].sum()]
    given = [row for row in last["per_class"].values() if row["IoU"] is not None]
    assert len(given) == len(used)
    assert len(used) == classes - len(absent) or classes == 150
    options = {"labels": used, "average": None, "zero_division": 0}
    for key, score in (("IoU", jaccard_score), ("Dice", f1_score), ("Acc", recall_score)):
        expected = score(true, said, **options)
        found = [row[key] for row in given]
        if key == "Acc":
            occurs = [counts[i].sum() > 0 for i in used]
            assert [value is not None for value in found] == occurs
            expected = expected[occurs]
            found = [value for value in found if value is not None]
        assert found == pytest.approx(100 * expected)
        name = {"IoU": "mIoU", "Dice": "mDice", "Acc": "mAcc"}[key]
        assert results[name] == pytest.approx(100 * expected.mean())
    assert results["aAcc"] == pytest.approx(100 * (said == true).mean())


def test_where_every_pixel_is_ignored_there_is_nothing_to_measure(monkeypatch):
    lines = []
    monkeypatch.setattr(segmentation, "print_log", lambda *a, **k: lines.append(a[0]))
    lost = sample([[0, 1]], [[255, 255]], pixel_loss=(0.0, 0))
    results, last = evaluated(lost)
    assert results == {}
    assert (last["num_pixels"], last["num_ignored"]) == (0, 2)
    assert all(row["IoU"] is None for row in last["per_class"].values())
    assert lines == ["all pixels of 1 images are ignored (255): no IoU"]
    json.dumps(last, allow_nan=False)
    results, _ = evaluated(lost, sample([[0]], [[0]], "b"))
    assert results["mIoU"] == 100.0


def test_absent_classes_are_said_once(monkeypatch):
    lines = []
    monkeypatch.setattr(segmentation, "print_log", lambda *a, **k: lines.append(a[0]))
    made = metric()
    for _ in range(2):
        made.process({}, [sample([[0]], [[0]])])
        assert made.evaluate(1)["mIoU"] == 100.0
    assert lines == [
        "2 of 3 classes neither occur nor are predicted; they are in no mean: sky, tree"
    ]


def test_each_image_counts_once():
    one, two = sample([[0, 1]], [[0, 0]]), sample([[0]], [[0]], "b")
    assert evaluated(one, two, one, one)[0] == evaluated(one, two)[0]


def test_images_of_one_id_in_two_folders_are_two():
    """As in two data sets joined to one."""
    paths = [{"img_path": f"/data/{folder}/a.jpg"} for folder in ("one", "two")]
    _, last = evaluated(*(sample([[0]], [[0]], **path) for path in paths))
    assert last["num_images"] == 2


def test_the_loss_is_the_mean_over_pixels():
    one = sample([[0]], [[0]], "a", pixel_loss=(6.0, 3))
    two = sample([[0]], [[0]], "b", pixel_loss=(torch.tensor(2.0), torch.tensor(1)))
    without = sample([[0]], [[0]], "c")
    results, _ = evaluated(one, two, without)
    assert list(results)[-1] == "loss"
    assert results["loss"] == 2.0
    assert math.isnan(evaluated(one, {**two, "pixel_loss": (math.inf, 5)})[0]["loss"])
    assert "loss" not in evaluated(without)[0]


def test_neither_loss_nor_order_depends_on_who_counted_first(tmp_path):
    """1e16 swallows what is added to it one by one, and how much depends on the order."""
    losses = {"a": 1e16, "b": 1.0, "c": 1.0, "d": -1e16, "e": 1.0}
    found = []
    for order in ("abcde", "edcba", "badec"):
        made = metric(keep_predictions=True)
        for name in order:
            path = {"img_id": "same", "img_path": f"/data/{name}.png"}
            made.process({}, [sample([[0]], [[0]], pixel_loss=(losses[name], 1), **path)])
        found.append((made.evaluate(5)["loss"], [entry.path for entry in made._found]))
    assert found == [(0.6, [f"/data/{name}.png" for name in "abcde"])] * 3


def test_large_maps_are_counted_in_strips(monkeypatch):
    predicted, truth = random_maps(3, 3)
    whole = evaluated(sample(predicted, truth))
    monkeypatch.setattr(segmentation_counts, "_STRIP", 100)
    assert evaluated(sample(predicted, truth)) == whole


@pytest.mark.parametrize("kind", [torch.uint8, torch.int32, torch.int64])
def test_any_kind_of_whole_numbers(kind):
    predicted, truth = (torch.tensor(values, dtype=kind) for values in (PREDICTED, TRUTH))
    assert round(evaluated(sample(predicted, truth))[0]["mIoU"], 2) == 77.78


def test_data_elements_of_an_evaluator():
    """As mmseg's and our models give them: pixel data in a data element, by path or by id."""
    elements = []
    for name in ("a", "b"):
        element = BaseDataElement(metainfo={"img_path": f"/data/{name}.png"})
        element.pred_sem_seg = PixelData(data=torch.tensor([PREDICTED]))
        element.gt_sem_seg = PixelData(data=torch.tensor([TRUTH], dtype=torch.uint8))
        element.seg_logits = PixelData(data=torch.zeros(3, 2, 4))
        elements.append(element)
    elements[1].set_metainfo({"img_id": "b", "pixel_loss": (3.0, 6)})
    made = Evaluator(METRICS.build(dict(type="polaformer.SegmentationMetric")))
    made.dataset_meta = {"classes": CLASSES}
    made.process(elements, {})
    results = made.evaluate(2)
    assert round(results["mIoU"], 2) == 77.78
    assert results["loss"] == 0.5


ERRORS = [
    (
        sample([[0, 0]], [[0], [0]]),
        r"a: the predicted map is 1x2, the true one 2x1 \(height x width\).*LoadMask stands after",
    ),
    (
        sample([[0, 0, 0]], [[0, 3, 254]]),
        r"a: 2 true pixels have the value 3, 254, but the 3 classes are 0 to 2; .*reduce_zero_lab",
    ),
    (
        sample([[0, 0]], torch.tensor([[-1, 0]])),
        r"a: 1 true pixels have the value -1, but",
    ),
    (
        sample([[0, 3]], [[0, 0]]),
        r"a: the model predicts class number 3, but the data set has 3 classes; num_classes",
    ),
    (
        sample([[0.5]], [[0]]),
        r"a: pred_sem_seg must be a map \[1, H, W\] of class numbers, not \[1, 1\] of float32",
    ),
    (
        {**sample([[0]], [[0]]), "pred_sem_seg": {"data": torch.zeros(2, 1, 1, dtype=torch.int)}},
        r"not \[2, 1, 1\] of int32",
    ),
    (
        {"img_id": "a", "scores": 1},
        r"needs class maps \(pred_sem_seg\), but the model gives img_id",
    ),
    (
        {**sample([[0]], [[0]]), "gt_sem_seg": None},
        r"a has no truth \(gt_sem_seg\).*polaformer.LoadMask before PackSegInputs",
    ),
    (
        {**sample([[0]], [[0]]), "img_id": None, "img_path": None},
        r"does not say its image: PackSegInputs.meta_keys must list 'img_id'",
    ),
]


@pytest.mark.parametrize(("wrong", "message"), ERRORS)
def test_what_cannot_be_compared_is_named(wrong, message):
    with pytest.raises(UserError, match=message):
        metric().process({}, [wrong])


def test_what_cannot_be_evaluated_is_named():
    with pytest.raises(UserError, match="no image was evaluated; is the validation set empty"):
        metric().evaluate(3)
    with pytest.raises(UserError, match="needs the classes of the data set"):
        metric(classes=()).process({}, [sample([[0]], [[0]])])
    with pytest.raises(UserError, match=r"ignore_index=2 is the number of a class: .* has 3"):
        metric(ignore_index=2).process({}, [sample([[0]], [[0]])])
    with pytest.raises(UserError, match="ignore_index=None must be a whole number"):
        metric(ignore_index=None)


def test_another_ignored_value():
    results, last = evaluated(sample([[0, 1]], torch.tensor([[0, -1]])), ignore_index=-1)
    assert results["aAcc"] == 100.0
    assert last["num_ignored"] == 1


def test_classes_of_one_name_stay_apart():
    _, last = evaluated(sample([[0, 2]], [[0, 2]]), classes=("door", "sky", "door"))
    assert list(last["per_class"]) == ["door", "sky", "door (2)"]


def test_predictions_are_written_as_label_images(tmp_path):
    made = metric(keep_predictions=True)
    made.process({}, [sample(PREDICTED, TRUTH, "munich/0.1")])
    made.process({}, [sample([[2]], [[1]], "b", img_path="/data/b.jpg")])
    made.evaluate(2)
    assert made.write_results(tmp_path, None) == [tmp_path / "predictions"]
    files = sorted(path for path in tmp_path.rglob("*") if path.is_file())
    assert files == [tmp_path / "predictions/b.png", tmp_path / "predictions/munich/0.1.png"]
    with Image.open(files[1]) as image:
        assert image.mode == "P"
        assert np.asarray(image).tolist() == PREDICTED
        assert np.asarray(image.convert("RGB"))[0, 2].tolist() == [6, 230, 230]


@pytest.mark.parametrize(("classes", "palette"), [(3, None), (256, None), (5, PALETTE)])
def test_label_images_without_a_whole_palette(tmp_path, classes, palette):
    names = tuple(map(str, range(classes)))
    made = metric(names, palette, ignore_index=999, keep_predictions=True)
    made.process({}, [sample([[0, classes - 1]], [[0, 0]])])
    made.evaluate(1)
    made.write_results(tmp_path, None)
    with Image.open(tmp_path / "predictions/a.png") as image:
        assert image.mode == "P"
        assert np.asarray(image).tolist() == [[0, classes - 1]]
        first, last = np.asarray(image.convert("RGB"))[0].tolist()
    assert first != last


def test_more_classes_than_a_palette_holds(tmp_path):
    made = metric(tuple(map(str, range(300))), None, ignore_index=-1, keep_predictions=True)
    made.process({}, [sample([[299, 256]], torch.tensor([[299, 0]]))])
    assert made.evaluate(1)["aAcc"] == 50.0
    made.write_results(tmp_path, None)
    with Image.open(tmp_path / "predictions/a.png") as image:
        assert np.asarray(image).tolist() == [[299, 256]]


@pytest.mark.parametrize(
    ("wished", "testing", "kept"),
    [(None, False, False), (None, True, True), (False, True, False), (True, False, True)],
)
def test_predictions_are_kept_in_tests_or_as_wished(tmp_path, wished, testing, kept):
    made = metric(keep_predictions=wished)
    made.testing = testing
    made.process({}, [sample(PREDICTED, TRUTH)])
    assert (made.results[0].picture is not None) == kept
    made.evaluate(1)
    assert bool(made.write_results(tmp_path, None)) == kept
    assert bool(list(tmp_path.iterdir())) == kept


def test_label_images_of_an_earlier_test_are_removed(tmp_path):
    made = metric(keep_predictions=True)
    for names in (("a", "munich/b"), ("a",)):
        for name in names:
            made.process({}, [sample(PREDICTED, TRUTH, name)])
        made.evaluate(len(names))
        made.write_results(tmp_path, None)
        (tmp_path / "predictions/notes.txt").write_text("mine")
    left = sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*"))
    assert left == ["predictions", "predictions/a.png", "predictions/notes.txt"]


@pytest.mark.parametrize("images", [("s/a", "b"), ("s/a",)])
def test_names_do_not_depend_on_the_other_images(tmp_path, images):
    """Without ids they count from the image folder of the data set, also inside of wrappers."""
    folder = SimpleNamespace(data_prefix={"img_path": "/data/val"}, img_suffix="_left.jpg")
    other = SimpleNamespace(data_prefix={"img_path": "/elsewhere"})
    dataset = SimpleNamespace(dataset=SimpleNamespace(datasets=[other, folder]))
    made = metric(keep_predictions=True)
    for name in images:
        unnamed = {"img_id": None, "img_path": f"/data/val/{name}_left.jpg"}
        made.process({}, [sample(PREDICTED, TRUTH, **unnamed)])
    made.evaluate(len(images))
    (folder,) = made.write_results(tmp_path, dataset)
    found = {str(path.relative_to(folder)) for path in folder.rglob("*.png")}
    assert found == {f"{name}.png" for name in images}


def test_images_without_truth_are_only_written(tmp_path):
    made = metric(format_only=True)
    made.process({}, [{**sample([[0, 2]], [[0, 0]]), "gt_sem_seg": None}])
    assert made.evaluate(1) == {}
    assert made.last == {"num_images": 1}
    (folder,) = made.write_results(tmp_path, None)
    with Image.open(folder / "a.png") as image:
        assert np.asarray(image).tolist() == [[0, 2]]
    with pytest.raises(UserError, match="the model predicts class number 3"):
        made.process({}, [{**sample([[0, 3]], [[0, 0]]), "gt_sem_seg": None}])
    assert metric_names({"val_evaluator": dict(type="polaformer.SegmentationMetric")}, 3)
    only = dict(type="polaformer.SegmentationMetric", format_only=True)
    assert metric_names({"val_evaluator": only}, 3) == set()


@pytest.mark.parametrize(
    ("images", "names"),
    [
        ([("a", "/x/a.jpg"), ("s/b.1", "/x/s/b.1.jpg")], ["a", "s/b.1"]),
        ([("/etc/passwd", ""), ("../../up", ""), ("..", "")], ["etc/passwd", "up", "image"]),
        ([("a\\..\\b", "")], ["a/b"]),
        ([("a", "/x/a.jpg"), ("a", "/y/a.jpg"), ("A", "")], ["a", "a_2", "A_3"]),
        ([("/x/s/a.jpg",) * 2, ("/x/b.tif",) * 2], ["s/a", "b"]),
        ([("/x/a.jpg",) * 2, ("/x/a.png",) * 2], ["a", "a_2"]),
        ([("x/a.jpg",) * 2, (str(Path("x/b.jpg").absolute()),) * 2], ["a", "b"]),
        ([("12", "/x/a.jpg")], ["12"]),
        ([], []),
    ],
)
def test_names_of_files(images, names):
    found = safe_names(images)
    assert [str(name) for name in found] == names
    assert not any(".." in name.parts or name.is_absolute() for name in found)


def test_best_checkpoints_can_follow_what_it_reports():
    config = {"val_evaluator": {"type": "polaformer.SegmentationMetric", "prefix": "val"}}
    assert metric_names(config, 3) == {
        f"val/{name}" for name in ("mIoU", "mAcc", "aAcc", "mDice", "loss")
    }


IMAGES = 7


def share(index: int) -> dict:
    """Image ``index`` of a set; losses whose sum depends on the order of adding."""
    predicted, truth = random_maps(index, 3)
    loss = (1e16 if index == 0 else 1.0 + index / 3, truth.size)
    return sample(predicted, truth, f"image {index}", pixel_loss=loss)


def _one_process(rank: int, port: int, world: int, results) -> None:
    torch.set_num_threads(1)
    address = f"tcp://127.0.0.1:{port}"
    dist.init_process_group("gloo", init_method=address, rank=rank, world_size=world)
    made = metric()
    # The last process has one image more than a fair share; the first of all fills up.
    for index in [*range(rank, IMAGES, world), *([0] if rank == world - 1 else [])]:
        made.process({}, [share(index)])
    told, last = made.evaluate(IMAGES), made.last
    made.process({}, [share(0)] if rank else [])
    made.dataset_meta = {"classes": CLASSES if rank else ()}
    try:
        made.evaluate(1)
        error = ""
    except UserError as found:
        error = str(found)
    results[rank] = (told, last, error)
    dist.destroy_process_group()


@pytest.mark.slow
@pytest.mark.parametrize("world", [2, 3])
def test_processes_agree_to_the_last_bit(world):
    alone = metric()
    for index in reversed(range(IMAGES)):
        alone.process({}, [share(index)])
    figures = alone.evaluate(IMAGES)
    assert figures["loss"] > 1e11
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with mp.Manager() as manager:
        results = manager.dict()
        mp.spawn(_one_process, args=(port, world, results), nprocs=world)
        assert len(results) == world
        for told, last, error in results.values():
            assert told == figures
            assert last == alone.last
            assert "needs the classes" in error
