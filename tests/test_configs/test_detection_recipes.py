"""Every shipped detection recipe: its form, name, settings and size, and one step of it."""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
import yaml
from mmengine.config import Config
from mmengine.registry import MODELS, DefaultScope, init_default_scope
from mmengine.structures import InstanceData
from recipe_files import (
    BACKBONES,
    ROOT,
    SIZES,
    build_optim_wrapper,
    docstring_of,
    lines_of_code,
    parameters,
    shipped,
)
from torch import nn

import polaformer.registry as registry
from polaformer.config.check import check_config
from polaformer.config.load import load_config
from polaformer.ops.flops import count_macs

FOLDER = ROOT / "configs" / "detection"
RECIPES = shipped(FOLDER)
NAMES = [path.stem for path in RECIPES]
NAME = re.compile(
    r"(?P<head>retinanet|mask_rcnn|cascade_mask_rcnn)_(?P<attention>pola|softmax)"
    r"-(?P<backbone>swin|pvt)-(?P<size>[a-z]+)(?:_(?P<schedule>[13]x))?_(?P<data>coco|digit-scenes)"
)
DETECTORS = {
    "retinanet": "RetinaNet",
    "mask_rcnn": "MaskRCNN",
    "cascade_mask_rcnn": "CascadeRCNN",
}
COCO = [name for name in NAMES if name.endswith("_coco")]
TWINS = [name for name in NAMES if "_softmax-" in name]
VARIANTS = ["swin-t", "swin-s", "swin-b", "pvt-t", "pvt-s", "pvt-m", "pvt-l"]
SCHEDULES = ["retinanet_1x", "mask_rcnn_1x", "mask_rcnn_3x", "cascade_mask_rcnn_3x"]

# Millions of parameters printed in the papers: PVT (arXiv 2102.12122) and Swin (arXiv 2103.14030).
PUBLISHED_SIZE = {
    "retinanet_softmax-pvt-t_1x_coco": "23.0",
    "retinanet_softmax-pvt-s_1x_coco": "34.2",
    "retinanet_softmax-pvt-m_1x_coco": "53.9",
    "retinanet_softmax-pvt-l_1x_coco": "71.1",
    "mask_rcnn_softmax-pvt-t_1x_coco": "32.9",
    "mask_rcnn_softmax-pvt-s_1x_coco": "44.1",
    "mask_rcnn_softmax-pvt-m_1x_coco": "63.9",
    "mask_rcnn_softmax-pvt-l_1x_coco": "81.0",
    "cascade_mask_rcnn_softmax-swin-t_3x_coco": "86",
    "cascade_mask_rcnn_softmax-swin-s_3x_coco": "107",
    "cascade_mask_rcnn_softmax-swin-b_3x_coco": "145",
}
# (schedule, variant) -> drop path, from the configs that each docstring names.
DROP_PATH = {
    ("1x", "swin-t"): 0.1,
    ("1x", "swin-s"): 0.1,
    ("1x", "swin-b"): 0.3,
    ("3x", "swin-t"): 0.2,
    ("3x", "swin-s"): 0.2,
    ("3x", "swin-b"): 0.3,
    **{(schedule, f"pvt-{size}"): 0.1 for schedule in ("1x", "3x") for size in "ts"},
    **{(schedule, f"pvt-{size}"): 0.2 for schedule in ("1x", "3x") for size in "ml"},
}


@pytest.fixture(autouse=True)
def detection_scope() -> Iterator[None]:
    """Names without prefix are mmdet's, as in a run of a detection recipe."""
    before = DefaultScope.get_current_instance()
    init_default_scope("mmdet")
    yield
    init_default_scope(before.scope_name if before else "mmengine")


@cache
def loaded(name: str) -> Config:
    return load_config(FOLDER / f"{name}.py")


def config(name: str) -> Config:
    return copy.deepcopy(loaded(name))


def parts(name: str) -> dict[str, str]:
    match = NAME.fullmatch(name)
    assert match, f"{name} does not follow the rule for names"
    return match.groupdict()


def variant(name: str) -> str:
    return "{backbone}-{size}".format(**parts(name))


_BUILT: dict[str, nn.Module] = {}


def on_meta(name: str) -> nn.Module:
    """Its model without values; schedules that differ in drop path alone share one."""
    import mmdet.models  # noqa: F401  (registers the detectors)

    model = config(name).model
    model.backbone.drop_path_rate = 0.0
    key = str(model.to_dict())
    if key not in _BUILT:
        with torch.device("meta"):
            _BUILT[key] = MODELS.build(model)
    return _BUILT[key]


def test_every_head_schedule_and_backbone_has_a_recipe_and_a_twin():
    wanted = set()
    for schedule in SCHEDULES:
        head, _, length = schedule.rpartition("_")
        for attention in ("pola", "softmax"):
            wanted |= {f"{head}_{attention}-{name}_{length}_coco" for name in VARIANTS}
    assert set(COCO) == wanted
    assert len(wanted) == 56
    pola = {name for name in NAMES if "_pola-" in name}
    assert {name.replace("_softmax-", "_pola-") for name in TWINS} <= pola


@pytest.mark.parametrize("path", RECIPES, ids=NAMES)
def test_detection_form(path):
    assert len(path.read_text(encoding="utf-8").splitlines()) <= 30
    docstring = docstring_of(path)
    assert f"configs/detection/{path.name}" in docstring
    assert "python tools/train.py" in docstring
    assert "Expected:" in docstring
    assert "Cost:" in docstring


@pytest.mark.parametrize("name", NAMES)
def test_detection_name_agrees_with_content(name):
    cfg, words = loaded(name), parts(name)
    assert cfg.default_scope == "mmdet"
    assert cfg.model.type == DETECTORS[words["head"]]
    backbone = cfg.model.backbone
    assert backbone.type == BACKBONES[words["backbone"]]
    assert backbone.arch == SIZES[words["size"]]
    assert backbone.get("attention", "pola") == words["attention"]
    if words["schedule"]:
        assert cfg.train_cfg.max_epochs == {"1x": 12, "3x": 36}[words["schedule"]]
    masks = words["head"] != "retinanet"
    assert cfg.val_evaluator.metric == (("bbox", "segm") if masks else ("bbox",))
    for split in ("train", "val", "test"):
        dataset = cfg[f"{split}_dataloader"].dataset
        assert dataset.type == "polaformer.CocoDataset"
        root = {"coco": "data/coco", "digit-scenes": "data/digit_scenes"}[words["data"]]
        assert dataset.data_root == root
    (load,) = [step for step in cfg.train_dataloader.dataset.pipeline if "Annot" in step.type]
    assert load.get("with_mask", False) is masks


@pytest.mark.parametrize("name", NAMES)
def test_dry_run_of_detection_on_eight_gpus_finds_it_sound(name):
    plan = check_config(loaded(name), require_data=False, processes=8, sizes=False)
    assert plan.problems == []
    if name in COCO:
        assert plan.lr == pytest.approx(1e-4)


@pytest.mark.parametrize("name", TWINS)
def test_a_detection_twin_differs_in_its_attention_only(name):
    twin, other = config(name), config(name.replace("_softmax-", "_pola-"))
    assert twin.model.backbone.pop("attention") == "softmax"
    for cfg in (twin, other):
        cfg.pop("work_dir", None)
    assert twin.to_dict() == other.to_dict()
    assert lines_of_code(FOLDER / f"{name}.py") <= 3


@pytest.mark.parametrize("name", COCO)
def test_settings_of_the_literature(name):
    cfg, words = loaded(name), parts(name)
    assert cfg.train_dataloader.batch_size == 2
    assert cfg.auto_scale_lr == dict(enable=True, base_batch_size=16)
    optimizer = cfg.optim_wrapper.optimizer
    assert (optimizer.type, optimizer.lr, optimizer.betas) == ("AdamW", 1e-4, (0.9, 0.999))
    assert optimizer.weight_decay == (1e-4 if words["head"] == "retinanet" else 0.05)
    assert cfg.optim_wrapper.paramwise_cfg == dict(decay_rule="usual")
    assert cfg.optim_wrapper.clip_grad is None
    rate = DROP_PATH[words["schedule"], variant(name)]
    assert cfg.model.backbone.drop_path_rate == rate
    assert f"Drop path {rate}" in docstring_of(FOLDER / f"{name.replace('softmax', 'pola')}.py")
    train, test = cfg.train_dataloader.dataset, cfg.test_dataloader
    assert (train.images_without_objects, train.min_size, test.batch_size) == ("drop", 32, 1)
    assert test.dataset.pipeline[1].scale == (1333, 800)
    sizes = [s for s in train.pipeline if s.type in ("Resize", "RandomChoice")]
    assert [s.type for s in sizes] == ["RandomChoice" if words["schedule"] == "3x" else "Resize"]
    if words["schedule"] == "3x":
        whole, cropped = sizes[0].transforms
        assert whole[0].scales == [(side, 1333) for side in range(480, 801, 32)]
        assert [step.type for step in cropped] == [
            "RandomChoiceResize",
            "RandomCrop",
            "RandomChoiceResize",
        ]


@pytest.mark.parametrize("schedule, epochs, drops", [("1x", 12, (8, 11)), ("3x", 36, (27, 33))])
def test_detection_learning_rate_at_key_steps(schedule, epochs, drops):
    cfg = loaded(f"mask_rcnn_pola-swin-t_{schedule}_coco")
    assert cfg.train_cfg.max_epochs == epochs
    steps = 7330  # of an epoch: 117,266 images with objects, 16 at a time
    optimizer = torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=1e-4)
    arguments = {"optimizer": optimizer, "epoch_length": steps}
    schedule = registry.PARAM_SCHEDULERS.build(
        copy.deepcopy(cfg.param_scheduler), default_args=arguments
    )
    first, second = (epoch * steps for epoch in drops)
    wanted = {0: 1e-7, 250: 5.005e-5, 500: 1e-4, first - 1: 1e-4, first: 1e-5}
    wanted |= {second - 1: 1e-5, second: 1e-6, epochs * steps - 1: 1e-6}
    assert {step: 1e-4 * schedule.factor(step) for step in wanted} == pytest.approx(wanted)


@pytest.mark.parametrize("name", sorted(PUBLISHED_SIZE))
def test_detector_has_the_size_of_the_published_one(name):
    printed = PUBLISHED_SIZE[name]
    digits = len(printed.partition(".")[2])
    assert f"{parameters(on_meta(name)) / 1e6:.{digits}f}" == printed


@pytest.mark.parametrize("name", NAMES)
def test_neck_takes_the_channels_of_the_backbone(name):
    model = on_meta(name)
    assert tuple(model.neck.in_channels) == model.backbone.channels
    assert len(model.backbone.norms) == len(model.backbone.out_indices)


# One step -----------------------------------------------------------------------------------------

NANO_CHANNELS = {"polaformer.PolaSwin": [32, 64, 128, 256], "polaformer.PolaPVT": [32, 64, 96, 128]}
SMALL = {
    "in_channels": 16,
    "out_channels": 16,
    "feat_channels": 16,
    "conv_out_channels": 16,
    "fc_out_channels": 32,
    "num": 16,
    "nms_pre": 100,
    "max_per_img": 50,
}


def shrink(node: Any) -> None:
    """Make the neck and the heads narrow and their samples few, in place."""
    for child in node.values() if isinstance(node, dict) else node:
        if isinstance(child, dict | list | tuple):
            shrink(child)
    if isinstance(node, dict):
        node.update({key: value for key, value in SMALL.items() if key in node})


def small_model(name: str) -> nn.Module:
    """Of the nano size, whatever the recipe's."""
    cfg = config(name).model
    shrink(cfg)
    channels = NANO_CHANNELS[cfg.backbone.type]
    cfg.backbone.update(arch="nano", img_size=64)
    cfg.neck.in_channels = [channels[i] for i in cfg.backbone.out_indices]
    torch.manual_seed(0)
    import mmdet.models  # noqa: F401

    model = MODELS.build(cfg)
    model.init_weights()
    return model


def batch(objects: tuple[int, ...], masks: bool = False) -> dict[str, list[Any]]:
    """Images of 64 x 96 and smaller; ``objects`` says how many rectangles each has."""
    from mmdet.structures import DetDataSample
    from mmdet.structures.mask import BitmapMasks

    rng = np.random.default_rng(0)
    inputs, samples = [], []
    for i, count in enumerate(objects):
        height, width = 64, 96 - 16 * i
        corner = rng.integers(0, (width - 48, height - 40), (count, 2))
        boxes = np.concatenate([corner, corner + rng.integers(16, 40, (count, 2))], 1)
        bitmaps = np.zeros((count, height, width), np.uint8)
        for bitmap, (left, top, right, bottom) in zip(bitmaps, boxes, strict=True):
            bitmap[top:bottom, left:right] = 1
        truth = InstanceData(
            bboxes=torch.from_numpy(boxes).float().reshape(-1, 4),
            labels=torch.from_numpy(rng.integers(0, 10, count)),
        )
        if masks:
            truth.masks = BitmapMasks(bitmaps, height, width)
        size = {"img_shape": (height, width), "ori_shape": (height, width), "img_id": i}
        sample = DetDataSample(metainfo={**size, "scale_factor": (1.0, 1.0)})
        sample.gt_instances, sample.ignored_instances = (
            truth,
            InstanceData(bboxes=torch.zeros(0, 4), labels=torch.zeros(0, dtype=torch.long)),
        )
        inputs.append(torch.from_numpy(rng.integers(0, 256, (3, height, width), np.uint8)))
        samples.append(sample)
    return {"inputs": inputs, "data_samples": samples}


def step(name: str, objects: tuple[int, ...]) -> nn.Module:
    """One optimisation step, in which every trainable parameter takes part."""
    model = small_model(name)
    wrapper = build_optim_wrapper(model, loaded(name).optim_wrapper)
    before = {key: value.detach().clone() for key, value in model.named_parameters()}
    without_gradient: list[str] = []

    def look(*_: Any) -> None:
        trained = [(k, p) for k, p in model.named_parameters() if p.requires_grad]
        assert len(trained) == len(before)
        without_gradient.extend(key for key, value in trained if value.grad is None)

    wrapper.optimizer.register_step_pre_hook(look)
    logs = model.train_step(batch(objects, masks=hasattr(model, "roi_head")), wrapper)
    assert all(torch.isfinite(value).all() for value in logs.values())
    assert without_gradient == []  # so DDP needs no search for unused parameters
    moved = set()
    for key, value in model.named_parameters():
        assert torch.isfinite(value).all(), key
        if not torch.equal(before[key], value.detach()):
            moved.add(key.partition(".")[0])
    assert moved == {key.partition(".")[0] for key in before}
    return model


@pytest.mark.parametrize("name", NAMES)
def test_one_small_step_of_detection(name):
    model = step(name, objects=(3, 0, 1))
    (result,) = model.eval().val_step(batch((2,)))
    assert result.pred_instances.bboxes.shape[1] == 4
    assert ("masks" in result.pred_instances) is hasattr(model, "roi_head")


@pytest.mark.parametrize("head", DETECTORS)
def test_a_batch_without_any_object_trains_every_parameter(head):
    step(next(name for name in COCO if name.startswith(f"{head}_pola-swin-t")), objects=(0, 0))


# Pretrained backbone ------------------------------------------------------------------------------


def test_a_classifier_enters_by_the_options_of_the_docstrings(tmp_path):
    """As ``{'model': …}`` with a 1000-class head, the form of a classification checkpoint."""
    from polaformer.engine.weights import load_pretrained, take_pretrained

    classifier = registry.MODELS.build(
        dict(
            type="polaformer.ImageClassifier",
            backbone=dict(type="polaformer.PolaPVT", arch="nano", img_size=64),
            head=dict(type="polaformer.LinearHead", num_classes=1000),
        )
    )
    path = tmp_path / "classifier.pth"
    torch.save({"model": classifier.state_dict()}, path)
    name = "retinanet_pola-pvt-t_1x_coco"
    options = re.search(
        r"--cfg-options (.+)", docstring_of(FOLDER / f"{name}.py").replace("\n", " ")
    )
    words = options[1].replace("FILE", str(path)).split()
    cfg = load_config(FOLDER / f"{name}.py", words)
    assert cfg.model.backbone.init_cfg == dict(type="Pretrained", checkpoint=str(path))
    model = small_model(name)
    model.backbone.init_cfg = cfg.model.backbone.init_cfg
    load_pretrained(take_pretrained(model))
    wanted = classifier.backbone.state_dict()
    got = {k: v for k, v in model.backbone.state_dict().items() if not k.startswith("norms.")}
    assert set(got) == set(wanted)
    assert all(torch.equal(value, wanted[key]) for key, value in got.items())


# Tables -------------------------------------------------------------------------------------------


class Dense(nn.Module):
    """What follows the backbone and depends on the size of the image alone."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.neck = model.neck
        self.head = model.bbox_head if hasattr(model, "bbox_head") else model.rpn_head

    def forward(self, maps: list[torch.Tensor]) -> Any:
        return self.head(self.neck(maps))


def empty(*shape: int) -> torch.Tensor:
    return torch.empty(*shape, device="meta")


@cache
def backbone_macs(attention: str, backbone: str, size: str, height: int, width: int) -> float:
    """The same for every detector: norms and what is returned cost none."""
    wanted = {"attention": attention, "backbone": backbone, "size": size}
    name = next(name for name in NAMES if parts(name).items() >= wanted.items())
    return count_macs(on_meta(name).backbone, empty(1, 3, height, width))


def dense_macs(name: str) -> float:
    words = parts(name)
    height, width = (800, 1344) if name in COCO else (160, 160)
    model = on_meta(name)
    maps = [
        empty(1, channels, height // stride, width // stride)
        for channels, stride in zip(model.backbone.channels, model.backbone.strides, strict=True)
    ]
    shared = backbone_macs(words["attention"], words["backbone"], words["size"], height, width)
    return (shared + count_macs(Dense(model), maps)) / 1e9


def rows() -> list[dict[str, Any]]:
    return yaml.safe_load((FOLDER / "metafile.yml").read_text(encoding="utf-8"))["recipes"]


def test_metafile_of_detection_lists_every_recipe():
    assert [row["config"] for row in rows()] == sorted(path.name for path in RECIPES)


@pytest.mark.parametrize("row", rows(), ids=lambda row: row["config"])
def test_tables_of_detection_give_the_measured_size(row):
    name = row["config"].removesuffix(".py")
    assert row["params_m"] == pytest.approx(parameters(on_meta(name)) / 1e6, abs=0.0051)
    digits = 1 if name in COCO else 2
    assert row["macs_g"] == round(dense_macs(name), digits)
    assert (row["box_ap"] is None) == (row["source"] is None)
    readme = (FOLDER / "README.md").read_text(encoding="utf-8")
    line = next(line for line in readme.splitlines() if f"[{name}]({name}.py)" in line)
    docstring = docstring_of(FOLDER / row["config"])
    assert f"| {row['params_m']:.2f} | {row['macs_g']:.{digits}f} |" in line
    assert f"{row['params_m']:.2f} M parameters" in docstring
    for kind in ("box", "mask"):
        if row[f"{kind}_ap"] is not None:
            assert f"| {row[f'{kind}_ap']:.1f} |" in line
            assert name not in COCO or f"{row[f'{kind}_ap']:.1f} {kind} AP" in docstring
    if name in COCO and not row["source"]:
        assert "not found here, not measured" in line
        assert "Expected: not found here, not measured." in docstring
    if row["source"]:
        assert row["source"] in line
        assert name not in COCO or row["source"] in docstring


@pytest.mark.parametrize("backbone", VARIANTS)
def test_the_model_card_gives_the_same_sizes(backbone):
    family, size = backbone.split("-")
    title = f"{BACKBONES[family].removeprefix('polaformer.')} {SIZES[size]}"
    card = (ROOT / "MODEL_CARD.md").read_text(encoding="utf-8").split("## Detectors")[1]
    measured = {row["config"].removesuffix(".py"): row for row in rows()}
    cells = []
    for schedule in ("retinanet_{}_1x", "mask_rcnn_{}_3x", "cascade_mask_rcnn_{}_3x"):
        row = measured[f"{schedule.format(f'pola-{backbone}')}_coco"]
        cells.append(f"{row['params_m']:.2f} / {row['macs_g']:.1f}")
    assert f"| {title} | {' | '.join(cells)} |" in card
