"""A training by iterations whose model says what it is told: figures, pictures, label images."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from mmengine.model import BaseModel
from mmengine.structures import BaseDataElement, PixelData
from PIL import Image

from polaformer.engine import drawers, launch
from polaformer.engine.drawers import Shown
from polaformer.engine.hooks import PictureHook
from polaformer.engine.hooks.pictures import _choose
from polaformer.engine.launch import TestOptions, TrainOptions
from polaformer.errors import UserError
from polaformer.registry import MODELS, TRANSFORMS
from polaformer.visualization import write_report
from polaformer.visualization.segmentations import PANEL

RAW = [[0, 1, 1, 2], [2, 3, 255, 1]]
PREDICTED = [[0, 0, 1, 1], [1, 2, 0, 0]]
TRUTH = [[255, 0, 0, 1], [1, 2, 255, 0]]


@TRANSFORMS.register_module()
class ToyPackMap:
    """Image and map as tensors in a data element, without importing mmseg."""

    def __call__(self, item):
        sample = BaseDataElement(metainfo={key: item[key] for key in ("img_id", "img_path")})
        sample.gt_sem_seg = PixelData(data=torch.from_numpy(item["gt_seg_map"].copy())[None])
        image = torch.from_numpy(np.ascontiguousarray(item["img"])).permute(2, 0, 1)
        return {"inputs": image, "data_samples": sample}


@MODELS.register_module()
class ToySegmentor(BaseModel):
    """Says ``PREDICTED`` of every image."""

    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(1))

    def forward(self, inputs, data_samples=None, mode="tensor"):
        if mode == "loss":
            return {"loss": sum((image.float().mean() * self.weight).mean() for image in inputs)}
        for sample in data_samples:
            data = torch.tensor([PREDICTED], dtype=torch.uint8)
            sample.pred_sem_seg = PixelData(data=data)
            sample.set_metainfo({"pixel_loss": (3.0, 6)})
        return data_samples


CONFIG = """
default_scope = "polaformer"
custom_imports = dict(imports=["test_engine_segmentation"])
model = dict(type="polaformer.ToySegmentor")
pipeline = [
    dict(type="polaformer.LoadImage"),
    dict(type="polaformer.LoadMask"),
    dict(type="polaformer.ToyPackMap"),
]
data = dict(
    type="polaformer.SegmentationDataset",
    data_root="{root}",
    data_prefix=dict(img_path="images", seg_map_path="masks"),
    classes=("wall", "sky", "tree"),
    reduce_zero_label=True,
    pipeline=pipeline,
)
loader = dict(batch_size=1, num_workers=0, collate_fn=dict(type="pseudo_collate"))
train_dataloader = dict(
    dataset=data, sampler=dict(type="polaformer.InfiniteSampler", shuffle=True), **loader
)
val_dataloader = dict(
    dataset=dict(test_mode=True, **data),
    sampler=dict(type="polaformer.EpochSampler", shuffle=False),
    **loader,
)
test_dataloader = val_dataloader
val_evaluator = test_evaluator = dict(type="polaformer.SegmentationMetric")
train_cfg = dict(type="polaformer.IterTrainLoop", max_iters=4, val_interval=2)
val_cfg = dict(type="polaformer.ValLoop")
test_cfg = dict(type="polaformer.TestLoop")
optim_wrapper = dict(type="OptimWrapper", optimizer=dict(type="SGD", lr=0.001))
default_hooks = dict(
    pictures=dict(type="polaformer.PictureHook", count=3),
    logger=dict(type="polaformer.LoggerHook", interval=1),
)
randomness = dict(seed=0)
"""


@pytest.fixture
def config(tmp_path):
    for number, folder in enumerate(("", "sub/", "sub/")):
        for kind, pixels in (("images", np.full((2, 4, 3), 50 * number)), ("masks", RAW)):
            path = tmp_path / "data" / kind / f"{folder}{number}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(np.array(pixels, np.uint8)).save(path)
    path = tmp_path / "toy.py"
    path.write_text(CONFIG.replace("{root}", str(tmp_path / "data")))
    return path


def test_zero_label_and_255_in_training_and_in_the_test(config, tmp_path):
    """The label 0 is subtracted once on both ways: 66.67, 66.67, 100; subtracted twice gives 0."""
    work_dir = tmp_path / "run"
    runner = launch.train(TrainOptions(config, work_dir=work_dir, device="cpu"))
    (metric,) = runner.val_loop.evaluator.metrics
    assert [entry.picture for entry in metric._found] == [None] * 3
    lines = [json.loads(line) for line in (work_dir / "scalars.json").read_text().splitlines()]
    validated = [line for line in lines if "val/mIoU" in line]
    assert [line["iter"] for line in validated] == [2, 4]
    content = launch.test(TestOptions(config, checkpoint=work_dir, device="cpu"))
    expected = {"mIoU": 77.78, "mAcc": 88.89, "aAcc": 83.33, "mDice": 86.67, "loss": 0.5}
    assert {name: round(value, 2) for name, value in content["metrics"].items()} == expected
    for name, value in content["metrics"].items():
        assert validated[-1][f"val/{name}"] == value
    overlap = {name: round(row["IoU"], 2) for name, row in content["per_class"].items()}
    assert overlap == {"wall": 66.67, "sky": 66.67, "tree": 100.0}
    assert (content["num_images"], content["num_ignored"]) == (3, 6)

    with Image.open(work_dir / "predictions" / "sub" / "2.png") as image:
        assert image.mode == "P"
        assert np.asarray(image).tolist() == PREDICTED
    assert (work_dir / "predictions" / "0.png").is_file()

    names = sorted(path.name for path in (work_dir / "pictures").iterdir())
    assert names == ["iter_2.png", "iter_4.png", "test.png"]
    with Image.open(work_dir / "pictures" / "test.png") as image:
        assert image.width > 6 * PANEL
    html = write_report(work_dir).read_text()
    assert "77.78 % mIoU on 3 test images" in html
    assert "no more pictures" not in html


class MaskedScenes:
    """Images with true maps that the data set reads, without ids."""

    metainfo = {"classes": ("wall", "sky", "tree"), "palette": [(0, 0, 0)] * 3}

    def __len__(self):
        return 3

    def get_data_info(self, index):
        return {"img_path": f"/nowhere/{index}.png", "width": 4, "height": 2}

    def read_image(self, index):
        return Image.new("RGB", (4, 2))

    def read_mask(self, index):
        if index == 1:
            raise UserError("cut short")
        return np.array(TRUTH, np.uint8)


def sample(truth=None, **names):
    element = BaseDataElement(metainfo=names)
    element.pred_sem_seg = PixelData(data=torch.tensor([PREDICTED]))
    if truth is not None:
        element.gt_sem_seg = PixelData(data=torch.as_tensor(truth)[None])
    return element


def test_what_is_kept_of_class_maps():
    drawer = drawers.SegmentationDrawer()
    kept = drawer.keep(sample(TRUTH))
    assert kept.predicted.tolist() == PREDICTED
    assert kept.truth.tolist() == TRUTH
    assert round(kept.iou, 2) == 77.78
    assert drawer.keep(sample())[1:] == (None, None)
    assert drawer.keep(sample([[0]]))[1:] == (None, None)
    assert drawer.keep(sample(torch.full((2, 4), 255))).iou is None
    assert not drawer.knows({"pred_instances": 1})
    large = torch.zeros(1, 3000, 2000, dtype=torch.uint8)
    assert drawer.keep({"pred_sem_seg": {"data": large}}).predicted.shape == (PANEL, 200)


def test_maps_are_drawn_by_the_drawer_that_knows_them(monkeypatch):
    hook = PictureHook()
    hook._wanted = _choose(MaskedScenes(), 3)
    hook._keep([sample(img_path="/nowhere/2.png"), sample(img_path="/nowhere/7.png")])
    assert list(hook._kept) == ["/nowhere/2.png"]
    assert isinstance(hook._drawer, drawers.SegmentationDrawer)


def test_an_image_is_found_by_its_path_where_predictions_have_no_id(monkeypatch):
    info = MaskedScenes.get_data_info
    monkeypatch.setattr(
        MaskedScenes, "get_data_info", lambda self, i: {**info(self, i), "img_id": i}
    )
    hook = PictureHook()
    hook._wanted = _choose(MaskedScenes(), 3)
    assert list(hook._wanted) == [0, 1, 2]
    hook._keep([sample(img_path="/nowhere/2.png"), sample(img_id=0)])
    assert list(hook._kept) == [2, 0]


def test_the_truth_of_the_data_set_stands_in_for_that_of_the_sample(monkeypatch, tmp_path):
    drawn = []
    monkeypatch.setattr(
        drawers, "draw_segmentations", lambda scenes, *_, **__: drawn.extend(scenes)
    )
    chosen = _choose(MaskedScenes(), 3)
    assert [shown.truth is None for shown in chosen.values()] == [False, True, False]
    drawer = drawers.SegmentationDrawer()
    kept = drawer.keep(sample())
    shown = [(item, kept) for item in chosen.values()]
    shown.append((Shown({}, Image.new("RGB", (4, 2)), (4, 2)), drawer.keep(sample(TRUTH))))
    drawer.draw(shown, MaskedScenes.metainfo, tmp_path / "p.png", "early")
    assert [None if scene.truth is None else scene.truth.tolist() for scene in drawn] == [
        TRUTH,
        None,
        TRUTH,
        TRUTH,
    ]
    assert [scene.iou and round(scene.iou, 2) for scene in drawn] == [77.78, None, 77.78, 77.78]
    assert drawn[0].name == "0.png"
