"""Pictures of predictions after validations and tests, and test-time augmentation, with a stub."""

from __future__ import annotations

import json
import random
import runpy
from pathlib import Path

import numpy as np
import pytest
import torch
from engine_toy import toy_config
from mmengine.evaluator import BaseMetric
from mmengine.model import BaseModel, BaseTTAModel
from mmengine.structures import BaseDataElement, InstanceData
from PIL import Image

from polaformer.datasets.coco import CocoDataset
from polaformer.engine import drawers, launch
from polaformer.engine.drawers import DetectionDrawer, Kept, _truth
from polaformer.engine.hooks import PictureHook, pictures
from polaformer.engine.hooks.pictures import _choose
from polaformer.engine.launch import TestOptions, TrainOptions
from polaformer.engine.run_card import describe_data
from polaformer.engine.runner import Runner
from polaformer.errors import UserError
from polaformer.registry import DATASETS, METRICS, MODELS
from polaformer.visualization.detections import MAX_OBJECTS, Thing

ROOT = Path(__file__).resolve().parents[2]
WIDTH, HEIGHT = 40, 30
CLASSES = ("cat", "dog")


@DATASETS.register_module()
class ToyScenes:
    """``count`` images of one colour each, with one object: a quarter of the image."""

    def __init__(self, count=5, pipeline=("plain",)):
        self.count, self.pipeline = count, tuple(pipeline)
        self.classes = CLASSES
        self.metainfo = {"classes": CLASSES}

    def __len__(self):
        return self.count

    def get_data_info(self, index):
        polygon = [0.0, 0.0, 20.0, 0.0, 20.0, 15.0]
        objects = [{"bbox": [0, 0, 20, 15], "bbox_label": index % 2, "mask": [polygon]}]
        return {
            "img_id": 100 + index,
            "img_path": f"/nowhere/{index}.png",
            "width": WIDTH,
            "height": HEIGHT,
            "instances": objects,
        }

    def read_image(self, index):
        return Image.new("RGB", (WIDTH, HEIGHT), (50 * index, 90, 90))

    def __getitem__(self, index):
        forms = [torch.full((3, 4, 4), float(index) + form) for form in range(len(self.pipeline))]
        sample = BaseDataElement(metainfo={"img_id": 100 + index, "ori_shape": (HEIGHT, WIDTH)})
        if len(forms) == 1:
            return {"inputs": forms[0], "data_samples": sample}
        return {"inputs": forms, "data_samples": [sample.clone() for _ in forms]}


@MODELS.register_module()
class ToyDetector(BaseModel):
    """Finds the quarter in every image, and says in the score how often it was asked."""

    def __init__(self, score=0.9):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(1))
        self.score = score
        self.asked = 0

    def forward(self, inputs, data_samples=None, mode="tensor"):
        if mode == "loss":
            noise = torch.rand(1)
            return {"loss": sum((x.mean() * self.weight + noise).mean() for x in inputs)}
        self.asked += 1
        for sample in data_samples:
            masks = torch.zeros(2, HEIGHT, WIDTH, dtype=torch.bool)
            masks[:, :15, :20] = True
            boxes = torch.tensor([[0.0, 0.0, 20.0, 15.0], [1.0, 1.0, 3.0, 3.0]])
            found = {"bboxes": boxes, "scores": torch.tensor([self.score, 0.1]), "masks": masks}
            sample.pred_instances = InstanceData(**found, labels=torch.tensor([0, 1]))
        return data_samples


@MODELS.register_module()
class ToyTTA(BaseTTAModel):
    def merge_preds(self, data_samples_list):
        for forms in data_samples_list:
            forms[0].set_metainfo({"forms": len(forms)})
        return [forms[0] for forms in data_samples_list]


@METRICS.register_module()
class ToyForms(BaseMetric):
    """Mean number of forms an image was seen in, and a file of results."""

    def process(self, data_batch, data_samples):
        self.results += [sample.get("forms", 1) for sample in data_samples]

    def compute_metrics(self, results):
        self.last = {"num_images": len(results), "per_class": {"cat": {"bbox_mAP": 0.5}}}
        return {"bbox_mAP": sum(results) / len(results), "bbox_mAP_50": 0.75}

    def write_results(self, folder, dataset):
        (folder / "forms.json").write_text(json.dumps([len(dataset)]))
        return [folder / "forms.json"]


CONFIG = """
default_scope = "polaformer"
custom_imports = dict(imports=["engine_toy", "test_engine_pictures"])
model = dict(type="polaformer.ToyDetector")
loader = dict(batch_size=1, num_workers=0, collate_fn=dict(type="pseudo_collate"))
train_dataloader = dict(
    dataset=dict(type="polaformer.ToyScenes"),
    sampler=dict(type="polaformer.EpochSampler", shuffle=True),
    **loader,
)
val_dataloader = dict(
    dataset=dict(type="polaformer.ToyScenes"),
    sampler=dict(type="polaformer.EpochSampler", shuffle=False),
    **loader,
)
test_dataloader = val_dataloader
val_evaluator = dict(type="polaformer.ToyForms")
test_evaluator = val_evaluator
train_cfg = dict(type="polaformer.EpochTrainLoop", max_epochs=2)
val_cfg = dict(type="polaformer.ValLoop")
test_cfg = dict(type="polaformer.TestLoop")
optim_wrapper = dict(type="OptimWrapper", optimizer=dict(type="SGD", lr=0.001))
default_hooks = dict(pictures=dict(type="polaformer.PictureHook", count=3))
randomness = dict(seed=0)
"""

TTA = """
tta_model = dict(type="polaformer.ToyTTA")
tta_pipeline = ["one", "two", "three"]
"""


@pytest.fixture
def config(tmp_path):
    path = tmp_path / "toy.py"
    path.write_text(CONFIG)
    return path


def train(config, work_dir, **changes):
    return launch.train(TrainOptions(config, work_dir=work_dir, device="cpu", cfg_options=changes))


@pytest.fixture
def trained(config, tmp_path):
    train(config, tmp_path / "run")
    return tmp_path / "run"


def names(folder):
    return sorted(path.name for path in (folder / "pictures").glob("*"))


def test_a_picture_after_each_validation_and_after_a_test(config, trained, capsys):
    assert names(trained) == ["epoch_1.png", "epoch_2.png"]
    launch.test(TestOptions(config, checkpoint=trained / "epoch_2.pth", device="cpu"))
    assert names(trained) == ["epoch_1.png", "epoch_2.png", "test.png"]
    assert "no more pictures" not in capsys.readouterr().out
    assert json.loads((trained / "forms.json").read_text()) == [5]
    with Image.open(trained / "pictures" / "test.png") as image:
        assert image.width > 700


def test_pictures_change_nothing_of_the_training(config, trained, tmp_path):
    config.write_text(CONFIG.replace('dict(type="polaformer.PictureHook", count=3)', "None"))
    train(config, tmp_path / "without")
    assert not (tmp_path / "without" / "pictures").exists()
    one, other = (
        torch.load(folder / "epoch_2.pth", weights_only=True)["state_dict"]["weight"]
        for folder in (trained, tmp_path / "without")
    )
    assert torch.equal(one, other)


def test_drawing_uses_no_random_numbers():
    before = random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state()
    _choose(ToyScenes(), 3)
    assert random.getstate() == before[0]
    assert np.random.get_state()[1].tolist() == before[1]
    assert torch.equal(torch.get_rng_state(), before[2])


def test_an_interval_and_the_last_epoch(config, tmp_path):
    changes = {"default_hooks.pictures.interval": 2, "train_cfg.max_epochs": 3}
    train(config, tmp_path / "run", **changes)
    assert names(tmp_path / "run") == ["epoch_2.png", "epoch_3.png"]


def test_nothing_is_drawn_for_a_classifier(tmp_path, capsys):
    runner = Runner.from_cfg(toy_config(tmp_path, **{"train_cfg.max_epochs": 1}))
    runner.register_hook(PictureHook())
    runner.train()
    assert not (tmp_path / "pictures").exists()
    assert "no more pictures" not in capsys.readouterr().out


def test_a_picture_that_fails_never_stops_a_run(config, tmp_path, monkeypatch, capsys):
    def fail(*args, **options):
        raise OSError("disk full")

    monkeypatch.setattr(drawers, "draw_detections", fail)
    runner = train(config, tmp_path / "run")
    assert runner.epoch == 2
    assert capsys.readouterr().out.count("no more pictures of predictions in this run: OSErr") == 1


def test_a_validation_and_a_test_that_measure_nothing_say_so(config, tmp_path, monkeypatch, capsys):
    """As of a set without any object."""
    monkeypatch.setattr(ToyForms, "compute_metrics", lambda self, results: {})
    train(config, tmp_path / "run", **{"train_cfg.max_epochs": 1})
    options = {"checkpoint": tmp_path / "run" / "epoch_1.pth", "device": "cpu"}
    launch.test(TestOptions(config, **options))
    out = capsys.readouterr().out
    assert "Epoch(val) [1]  nothing could be measured" in out
    assert "Test  nothing could be measured" in out


def test_a_title_that_fails_never_stops_a_run(config, tmp_path, monkeypatch, capsys):
    def fail(metrics):
        raise TypeError("a metric of another form")

    monkeypatch.setattr(pictures, "main_measure", fail)
    assert train(config, tmp_path / "run").epoch == 2
    out = capsys.readouterr().out
    assert out.count("no more pictures of predictions in this run: TypeError") == 1


def test_predictions_of_another_form_never_stop_a_run(config, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(DetectionDrawer, "keep", lambda self, sample: 1 / 0)
    assert train(config, tmp_path / "run").epoch == 2
    assert capsys.readouterr().out.count("ZeroDivisionError") == 1


def test_the_choice_is_spread_and_leaves_out_what_cannot_be_read(monkeypatch):
    assert list(_choose(ToyScenes(9), 3)) == [100, 104, 108]
    assert list(_choose(ToyScenes(2), 8)) == [100, 101]
    assert list(_choose(ToyScenes(5), 1)) == [100]
    assert _choose(ToyScenes(0), 8) == {}
    monkeypatch.setattr(pictures, "get_world_size", lambda: 4)
    assert list(_choose(ToyScenes(10), 3)) == [100, 104, 108]  # what process 0 of 4 sees

    def broken(self, index):
        raise UserError("cut short")

    monkeypatch.setattr(ToyScenes, "read_image", broken)
    assert _choose(ToyScenes(5), 3) == {}


def instances(count, best=0.9, **more):
    scores = torch.linspace(best, 0.0, count)
    boxes = torch.arange(4.0).repeat(count, 1)
    found = {"bboxes": boxes, "scores": scores, "labels": torch.arange(count), **more}
    return {"pred_instances": found}


def test_what_is_kept_of_predictions():
    drawer = DetectionDrawer(score_thr=0.25)
    kept = drawer.keep(instances(4, best=0.75))
    assert [round(thing.score, 6) for thing in kept.things] == [0.75, 0.5, 0.25]
    assert kept.things[1] == Thing((0.0, 1.0, 2.0, 3.0), 1, "", kept.things[1].score)
    assert kept.note == "score 0.25 or more"
    assert drawer.keep(instances(0)) == Kept([], "none of any score", masks=False)
    assert drawer.keep(instances(3, best=0.125)) == Kept([], "best score 0.12", masks=False)
    kept = drawer.keep(instances(1000, best=1.0))
    assert (len(kept.things), kept.note) == (MAX_OBJECTS, "the best of 750")
    assert not drawer.knows({"scores": torch.zeros(3)})
    half = drawer.keep(instances(2, scores=torch.tensor([0.5, 0.25]).bfloat16())).things
    assert [thing.score for thing in half] == [0.5, 0.25]


def test_masks_are_kept_small():
    masks = torch.zeros(2, 3000, 2000, dtype=torch.bool)
    masks[0, :1500] = True
    kept = DetectionDrawer(0.5).keep(instances(2, masks=masks))
    (thing,) = kept.things
    assert kept.masks
    assert thing.mask.shape == (375, 250)
    assert thing.mask.mean() == pytest.approx(0.5, abs=0.01)


@pytest.mark.parametrize("with_masks", [True, False])
def test_true_masks_are_drawn_before_the_model_is_sure_of_any(
    coco, tmp_path, monkeypatch, with_masks
):
    """Early in training no prediction reaches the threshold, and the truth is the same."""
    drawn = []
    monkeypatch.setattr(drawers, "draw_detections", lambda scenes, *_, **__: drawn.extend(scenes))
    masks = {"masks": torch.zeros(3, HEIGHT, WIDTH, dtype=torch.bool)} if with_masks else {}
    drawer = DetectionDrawer(0.5)
    kept = drawer.keep(instances(3, best=0.1, **masks))
    chosen = _choose(coco, 1)
    drawer.draw([(chosen[10], kept)], coco.metainfo, tmp_path / "p.png", "early")
    assert drawn[0].predicted == []
    assert [one.mask is not None for one in drawn[0].truth] == [with_masks] * 2


class DotDrawer:
    """Draws a file of one byte for each image that was predicted."""

    def __init__(self, score_thr):
        self.score_thr = score_thr

    def knows(self, sample):
        return "pred_instances" in sample

    def keep(self, sample):
        return "."

    def draw(self, shown, meta, out, title):
        out.parent.mkdir(exist_ok=True)
        out.write_text("".join(kept for _, kept in shown))


def test_a_drawer_of_another_task_is_one_entry_of_a_list(config, tmp_path, monkeypatch):
    monkeypatch.setattr(drawers, "DRAWERS", [DotDrawer, *drawers.DRAWERS])
    train(config, tmp_path / "run", **{"train_cfg.max_epochs": 1})
    assert (tmp_path / "run" / "pictures" / "epoch_1.png").read_text() == "..."


@pytest.mark.parametrize(
    "options, message",
    [
        ({"count": 0}, r"PictureHook.count is 0; allowed: 1 or more"),
        ({"score_thr": 1.5}, r"PictureHook.score_thr is 1.5; allowed: 0 to 1"),
        ({"interval": 0}, r"PictureHook.interval is 0; allowed: 1 or more"),
    ],
)
def test_wrong_values(options, message):
    with pytest.raises(UserError, match=message):
        PictureHook(**options)


def test_tta_sees_each_image_in_every_form(config, trained):
    config.write_text(CONFIG + TTA)
    options = {"checkpoint": trained / "epoch_2.pth", "device": "cpu"}
    content = launch.test(TestOptions(config, tta=True, **options))
    assert content["metrics"] == {"bbox_mAP": 3.0, "bbox_mAP_50": 0.75}
    assert content["tta"] is True
    plain = launch.test(TestOptions(config, **options))
    assert plain["metrics"]["bbox_mAP"] == 1.0
    assert "tta" not in plain


def test_tta_loads_the_checkpoint_into_the_model_inside(config, trained, capsys):
    config.write_text(CONFIG + TTA)
    capsys.readouterr()
    launch.test(TestOptions(config, tta=True, checkpoint=trained / "epoch_2.pth", device="cpu"))
    assert "1 of 1 loaded" in capsys.readouterr().out


def test_tta_without_its_parts_in_the_recipe_is_one_message(config, trained):
    options = {"tta": True, "checkpoint": trained / "epoch_2.pth", "device": "cpu"}
    with pytest.raises(UserError, match=r"toy\.py has no tta_model and no tta_pipeline"):
        launch.test(TestOptions(config, **options))


@pytest.fixture
def coco(tmp_path):
    """Two images of 40 x 30, one with a triangle of the second category and one crowd."""
    for index in range(2):
        Image.new("RGB", (WIDTH, HEIGHT), (50, 90, 90)).save(tmp_path / f"{index}.png")
    objects = [
        {"bbox": [0, 0, 20, 15], "segmentation": [[0, 0, 20, 0, 20, 15]], "iscrowd": 0},
        {"bbox": [4, 4, 8, 8], "segmentation": [[4, 4, 12, 4, 12, 12, 4, 12]], "iscrowd": 1},
    ]
    names = {7: "cat", 3: "dog"}
    content = {
        "images": [
            {"id": 10 + i, "file_name": f"{i}.png", "width": WIDTH, "height": HEIGHT}
            for i in range(2)
        ],
        "categories": [{"id": key, "name": name} for key, name in names.items()],
        "annotations": [
            {"id": i, "image_id": 10, "category_id": 7, **one} for i, one in enumerate(objects)
        ],
    }
    path = tmp_path / "val.json"
    path.write_text(json.dumps(content))
    whole = [lambda item: item]  # loads no masks, so the items have none
    return CocoDataset("val.json", str(tmp_path), pipeline=whole, test_mode=True)


def test_the_run_card_describes_annotated_data(coco):
    facts = describe_data(coco)
    assert facts["samples"] == facts["classes"] == 2
    assert facts["objects"] == 1
    assert "1 without objects" in facts["summary"]
    assert len(facts["fingerprint"]) == 64
    assert describe_data(ToyScenes()) == {"samples": 5, "classes": 2}


def test_true_masks_come_from_the_annotation_file(coco):
    chosen = _choose(coco, 8)
    assert list(chosen) == [10, 11]
    truth = _truth(chosen[10], coco.metainfo, masks=True)
    assert [(one.name, one.label, one.crowd) for one in truth] == [
        ("cat", 1, False),
        ("cat", 1, True),
    ]
    assert truth[0].box == (0.0, 0.0, 20.0, 15.0)
    assert truth[0].mask.shape == (HEIGHT, WIDTH)
    assert truth[0].mask[2, 18]
    assert not truth[0].mask[12, 4]
    without = _truth(chosen[10], coco.metainfo, masks=False)
    assert [one.mask for one in without] == [None, None]
    assert _truth(chosen[11], coco.metainfo, masks=True) == []


def test_the_switch_of_the_tool():
    parse = runpy.run_path(str(ROOT / "tools" / "test.py"))["parse_args"]
    assert parse(["c.py", "w.pth", "--tta"]).tta
    assert not parse(["c.py", "w.pth"]).tta
