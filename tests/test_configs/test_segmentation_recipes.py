"""Every shipped segmentation recipe: form, name, settings and size, and one step of its kind."""

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
from mmengine.structures import PixelData
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
from polaformer.backbones import pvt, swin
from polaformer.config.check import check_config
from polaformer.config.load import load_config
from polaformer.ops.flops import count_macs

FOLDER = ROOT / "configs" / "segmentation"
RECIPES = shipped(FOLDER)
NAMES = [path.stem for path in RECIPES]
NAME = re.compile(
    r"(?P<head>semantic_fpn|upernet)_(?P<attention>pola|softmax)-(?P<backbone>swin|pvt)"
    r"-(?P<size>[a-z]+)(?:_(?P<schedule>\d+k))?_(?P<data>ade20k|cityscapes|voc2012|coco-stuff"
    r"|digit-scenes)(?:-(?P<crop>\d+))?"
)
ARCHS = {"polaformer.PolaPVT": pvt.ARCHS, "polaformer.PolaSwin": swin.ARCHS}
HEADS = {"semantic_fpn": "FPNHead", "upernet": "UPerHead"}
# data -> (folder, classes of the data set, their number).
DATA = {
    "ade20k": ("data/ADEChallengeData2016", "ade20k", 150),
    "cityscapes": ("data/cityscapes", "cityscapes", 19),
    "voc2012": ("data/VOCdevkit/VOC2012", "voc2012", 21),
    "coco-stuff": ("data/coco", "coco_stuff", 171),
    "digit-scenes": ("data/digit_scenes", ("background", *"0123456789"), 11),
}
LITERATURE = [name for name in NAMES if not name.endswith("_digit-scenes")]
TWINS = [name for name in NAMES if "_softmax-" in name]
VARIANTS = ["swin-t", "swin-s", "swin-b", "pvt-t", "pvt-s", "pvt-m", "pvt-l"]

# Millions of parameters printed in the papers: PVT (arXiv 2102.12122, table 5), Swin (arXiv
# 2103.14030, table 3, and its repository) and CSWin (arXiv 2107.00652, table 6).
PUBLISHED_SIZE = {
    "semantic_fpn_softmax-pvt-t_80k_ade20k": "17.0",
    "semantic_fpn_softmax-pvt-s_80k_ade20k": "28.2",
    "semantic_fpn_softmax-pvt-m_80k_ade20k": "48.0",
    "semantic_fpn_softmax-pvt-l_80k_ade20k": "65.1",
    "semantic_fpn_softmax-swin-t_80k_ade20k": "31.9",
    "semantic_fpn_softmax-swin-s_80k_ade20k": "53.2",
    "semantic_fpn_softmax-swin-b_80k_ade20k": "91.2",
    "upernet_softmax-swin-t_160k_ade20k": "60",
    "upernet_softmax-swin-s_160k_ade20k": "81",
    "upernet_softmax-swin-b_160k_ade20k": "121",
}
# (head, variant) -> drop path, from the sources that README.md names.
DROP_PATH = {
    **{("semantic_fpn", f"swin-{size}"): 0.2 for size in "tsb"},
    **{("semantic_fpn", f"pvt-{size}"): 0.1 for size in "tsml"},
    **{("upernet", f"swin-{size}"): 0.3 for size in "tsb"},
    **{("upernet", f"pvt-{size}"): 0.2 for size in "ts"},
    **{("upernet", f"pvt-{size}"): 0.3 for size in "ml"},
}


@pytest.fixture(autouse=True)
def segmentation_scope() -> Iterator[None]:
    """Names without prefix are mmseg's, as in a run of a segmentation recipe."""
    before = DefaultScope.get_current_instance()
    init_default_scope("mmseg")
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
    """Its model without values; recipes whose models are alike share one."""
    import mmseg.models  # noqa: F401  (registers the heads)

    model = config(name).model
    model.backbone.drop_path_rate = 0.0
    key = str(model.to_dict())
    if key not in _BUILT:
        with torch.device("meta"):
            _BUILT[key] = MODELS.build(model)
    return _BUILT[key]


def test_every_segmentation_head_and_backbone_has_a_recipe_and_a_twin():
    wanted = set()
    for attention in ("pola", "softmax"):
        for kind in VARIANTS:
            wanted.add(f"semantic_fpn_{attention}-{kind}_80k_ade20k")
            wanted.add(f"upernet_{attention}-{kind}_160k_ade20k")
        wanted.add(f"upernet_{attention}-swin-b_160k_ade20k-640")
    assert {name for name in NAMES if "ade20k" in name} == wanted
    assert len(wanted) == 30
    assert {parts(name)["data"] for name in NAMES} == set(DATA)
    nano = [name for name in NAMES if name.endswith("_digit-scenes")]
    assert {(parts(name)["head"], parts(name)["backbone"]) for name in nano} == {
        (head, backbone) for head in HEADS for backbone in BACKBONES
    }


@pytest.mark.parametrize("path", RECIPES, ids=NAMES)
def test_segmentation_form(path):
    assert len(path.read_text(encoding="utf-8").splitlines()) <= 30
    docstring = docstring_of(path)
    assert f"configs/segmentation/{path.name}" in docstring
    assert "python tools/train.py" in docstring
    assert "Expected:" in docstring
    assert "Cost:" in docstring


@pytest.mark.parametrize("name", NAMES)
def test_segmentation_name_agrees_with_content(name):
    cfg, words = loaded(name), parts(name)
    assert cfg.default_scope == "mmseg"
    model = cfg.model
    assert (model.type, model.decode_head.type) == ("polaformer.Segmentor", HEADS[words["head"]])
    assert ("neck" in model, "auxiliary_head" in model) == (
        (True, False) if words["head"] == "semantic_fpn" else (False, True)
    )
    assert model.backbone.type == BACKBONES[words["backbone"]]
    assert model.backbone.arch == SIZES[words["size"]]
    assert model.backbone.get("attention", "pola") == words["attention"]
    if words["schedule"]:
        assert cfg.train_cfg.max_iters == 1000 * int(words["schedule"].removesuffix("k"))
    folder, classes, number = DATA[words["data"]]
    numbers = set(re.findall(r"'num_classes': (\d+)", str(model.to_dict())))
    assert numbers == {str(number)}
    for split in ("train", "val", "test"):
        dataset = cfg[f"{split}_dataloader"].dataset
        assert dataset.type == "polaformer.SegmentationDataset"
        assert (dataset.data_root, dataset.classes) == (folder, classes)
        assert dataset.get("test_mode", False) is (split != "train")
        assert "reduce_zero_label" not in dataset  # the class set says it, once
        steps = [step.type for step in dataset.pipeline]
        assert steps.count("polaformer.LoadMask") == 1
        before = ("RandomResize", "RandomChoice") if split == "train" else ("PackSegInputs",)
        after = () if split == "train" else ("Resize", "RandomResize")
        mask = steps.index("polaformer.LoadMask")
        assert all(steps.index(step) > mask for step in before if step in steps)
        assert all(steps.index(step) < mask for step in after if step in steps)
    assert cfg.test_dataloader == cfg.val_dataloader
    assert cfg.val_evaluator.type == "polaformer.SegmentationMetric"
    crops = [s for s in cfg.train_dataloader.dataset.pipeline if s.type == "RandomCrop"]
    if words["data"] != "digit-scenes":
        side = int(words["crop"] or 512)
        wanted = (512, 1024) if words["data"] == "cityscapes" else (side, side)
        assert [crop.crop_size for crop in crops] == [wanted]


_PLANS: dict[str, Any] = {}


def dry_run(name: str) -> Any:
    """The plan of a recipe with one block a stage, for the shapes of the step that is tried do not
    depend on the depth; recipes that are alike then share one."""
    cfg = config(name)
    backbone = cfg.model.backbone
    shallow = {"depths": (1, 1, 1, 1), "drop_path_rate": 0.0}
    backbone.arch = {**ARCHS[backbone.type][backbone.arch], **shallow}
    backbone.pop("drop_path_rate", None)
    cfg.pop("work_dir", None)
    key = str(cfg.to_dict())
    if key not in _PLANS:
        _PLANS[key] = check_config(cfg, require_data=False, processes=8, sizes=False)
    return _PLANS[key]


@pytest.mark.parametrize("name", NAMES)
def test_dry_run_of_segmentation_on_eight_gpus_finds_it_sound(name):
    plan = dry_run(name)
    assert plan.problems == []
    if name in LITERATURE:
        rate = {"semantic_fpn": 1e-4, "upernet": 6e-5}[parts(name)["head"]]
        assert plan.lr == pytest.approx(rate)


@pytest.mark.parametrize("name", TWINS)
def test_a_segmentation_twin_differs_in_its_attention_only(name):
    twin, other = config(name), config(name.replace("_softmax-", "_pola-"))
    assert twin.model.backbone.pop("attention") == "softmax"
    for cfg in (twin, other):
        cfg.pop("work_dir", None)
    assert twin.to_dict() == other.to_dict()
    assert lines_of_code(FOLDER / f"{name}.py") <= 3


@pytest.mark.parametrize("name", LITERATURE)
def test_segmentation_settings_of_the_literature(name):
    cfg, words = loaded(name), parts(name)
    assert cfg.train_dataloader.batch_size == 2
    assert cfg.val_dataloader.batch_size == 1
    assert cfg.auto_scale_lr == dict(enable=True, base_batch_size=16)
    optimizer = cfg.optim_wrapper.optimizer
    rate, decay = {"semantic_fpn": (1e-4, 1e-4), "upernet": (6e-5, 0.01)}[words["head"]]
    assert (optimizer.type, optimizer.lr, optimizer.betas) == ("AdamW", rate, (0.9, 0.999))
    assert optimizer.weight_decay == decay
    assert cfg.optim_wrapper.paramwise_cfg == dict(decay_rule="usual")
    assert cfg.optim_wrapper.clip_grad is None
    path = DROP_PATH[words["head"], variant(name)]
    assert cfg.model.backbone.drop_path_rate == path
    pola = FOLDER / f"{name.replace('_softmax-', '_pola-')}.py"
    assert f"Drop path {path} " in docstring_of(pola)
    scale = {"cityscapes": (2048, 1024)}.get(words["data"], (2048, 512))
    scale = (2560, 640) if words["crop"] else scale
    train = {step.type: step for step in cfg.train_dataloader.dataset.pipeline}
    assert (train["RandomResize"].scale, train["RandomResize"].ratio_range) == (scale, (0.5, 2.0))
    assert (train["RandomCrop"].cat_max_ratio, train["RandomFlip"].prob) == (0.75, 0.5)
    assert "PhotoMetricDistortion" in train
    (resize,) = [s for s in cfg.val_dataloader.dataset.pipeline if s.type == "Resize"]
    assert (resize.scale, resize.keep_ratio) == (scale, True)
    views = cfg.tta_pipeline[1].transforms
    ratios = (0.5, 0.75, 1.0, 1.25, 1.5, 1.75)
    assert [view.scale for view in views[0]] == [
        tuple(int(side * ratio) for side in scale) for ratio in ratios
    ]
    assert [view.prob for view in views[1]] == [0.0, 1.0]
    assert cfg.model.test_cfg == dict(mode="whole")


@pytest.mark.parametrize(
    "name, wanted",
    [
        ("semantic_fpn_pola-pvt-t_80k_ade20k", {0: 1.0, 40_000: 0.5**0.9, 79_999: 80_000**-0.9}),
        (
            "upernet_pola-swin-t_160k_ade20k",
            {0: 1e-6, 750: 0.5000005 * (1 - 750 / 160_000), 1_500: 1 - 1_500 / 160_000}
            | {80_000: 0.5, 159_999: 1 / 160_000},
        ),
    ],
)
def test_segmentation_learning_rate_at_key_steps(name, wanted):
    cfg = config(name)
    optimizer = torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=1.0)
    arguments = {"optimizer": optimizer, "end": cfg.train_cfg.max_iters}
    schedule = registry.PARAM_SCHEDULERS.build(cfg.param_scheduler, default_args=arguments)
    assert {step: schedule.factor(step) for step in wanted} == pytest.approx(wanted)


@pytest.mark.parametrize("name", sorted(PUBLISHED_SIZE))
def test_segmentor_has_the_size_of_the_published_one(name):
    printed = PUBLISHED_SIZE[name]
    digits = len(printed.partition(".")[2])
    assert f"{parameters(on_meta(name)) / 1e6:.{digits}f}" == printed


@pytest.mark.parametrize("name", NAMES)
def test_neck_and_heads_take_the_channels_of_the_backbone(name):
    model = on_meta(name)
    channels = model.backbone.channels
    taker = model.neck if hasattr(model, "neck") else model.decode_head
    assert tuple(taker.in_channels) == channels
    if hasattr(model, "auxiliary_head"):
        assert model.auxiliary_head.in_channels == channels[model.auxiliary_head.in_index]
    assert len(model.backbone.norms) == len(model.backbone.out_indices) == 4


# One step -----------------------------------------------------------------------------------------

NANO_CHANNELS = {"polaformer.PolaSwin": [32, 64, 128, 256], "polaformer.PolaPVT": [32, 64, 96, 128]}
CLASSES = 5


def small(name: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Model and optimiser of a recipe with the nano backbone, narrow heads and five classes."""
    cfg = config(name)
    model = cfg.model
    channels = NANO_CHANNELS[model.backbone.type]
    model.backbone.update(arch="nano", img_size=64)
    model.backbone.pop("drop_path_rate", None)
    model.decode_head.update(channels=16, num_classes=CLASSES)
    if "neck" in model:
        model.neck.update(in_channels=channels, out_channels=16)
        model.decode_head.in_channels = [16] * 4
    else:
        model.decode_head.in_channels = channels
        auxiliary = model.auxiliary_head
        width = channels[auxiliary.in_index]
        auxiliary.update(in_channels=width, channels=16, num_classes=CLASSES)
    optimizer = cfg.optim_wrapper
    return model.to_dict(), optimizer.to_dict()


def kind(name: str) -> str:
    """What remains of a recipe when the numbers of the backbone, heads and optimiser are gone."""
    model, optimizer = small(name)
    model.pop("data_preprocessor")
    for number in ("lr", "weight_decay"):
        optimizer["optimizer"].pop(number)
    return str((model, optimizer))


KINDS = [
    *(
        f"{head}_{attention}-{size}_{schedule}_ade20k"
        for head, schedule in (("semantic_fpn", "80k"), ("upernet", "160k"))
        for attention in ("pola", "softmax")
        for size in ("swin-t", "pvt-t")
    ),
    *(name for name in NAMES if name.endswith("_digit-scenes")),
]


def test_the_steps_below_stand_for_every_recipe():
    made = {kind(name) for name in KINDS}
    assert len(made) == len(KINDS) == 12
    assert {kind(name) for name in NAMES} == made


def batch() -> dict[str, list[Any]]:
    """Two images of different sizes with masks that have every class and ignored pixels."""
    from mmseg.structures import SegDataSample

    rng = np.random.default_rng(0)
    inputs, samples = [], []
    for height, width in ((64, 96), (64, 80)):
        labels = rng.integers(0, CLASSES, (height // 8, width // 8)).repeat(8, 0).repeat(8, 1)
        labels[:8] = 255
        size = {"img_shape": (height, width), "ori_shape": (height, width)}
        sample = SegDataSample(metainfo=size)
        sample.gt_sem_seg = PixelData(data=torch.from_numpy(labels)[None].long())
        inputs.append(torch.from_numpy(rng.integers(0, 256, (3, height, width), np.uint8)))
        samples.append(sample)
    return {"inputs": inputs, "data_samples": samples}


@pytest.mark.parametrize("name", KINDS)
def test_one_small_step_of_segmentation(name):
    """Every trainable parameter takes part, so DDP needs no search for unused ones."""
    import mmseg.models  # noqa: F401
    from mmengine.model import revert_sync_batchnorm

    model_cfg, optimizer = small(name)
    torch.manual_seed(0)
    model = MODELS.build(model_cfg)
    model.init_weights()
    model = revert_sync_batchnorm(model)  # as in a run of one process
    wrapper = build_optim_wrapper(model, optimizer)
    before = {key: value.detach().clone() for key, value in model.named_parameters()}
    without_gradient: list[str] = []

    def look(*_: Any) -> None:
        trained = [(k, p) for k, p in model.named_parameters() if p.requires_grad]
        assert len(trained) == len(before)
        without_gradient.extend(key for key, value in trained if value.grad is None)

    wrapper.optimizer.register_step_pre_hook(look)
    logs = model.train_step(batch(), wrapper)
    assert {"loss", "decode.loss_ce"} <= set(logs)
    assert ("aux.loss_ce" in logs) is name.startswith("upernet")
    assert all(torch.isfinite(value).all() for value in logs.values())
    assert without_gradient == []
    moved = set()
    for key, value in model.named_parameters():
        assert torch.isfinite(value).all(), key
        if not torch.equal(before[key], value.detach()):
            moved.add(key.partition(".")[0])
    assert moved == {key.partition(".")[0] for key in before}

    data = batch()
    (result,) = model.eval().val_step({key: values[:1] for key, values in data.items()})
    assert result.pred_sem_seg.data.shape == (1, 64, 96)
    assert int(result.pred_sem_seg.data.max()) < CLASSES


# Pretrained backbone ------------------------------------------------------------------------------


def test_a_classifier_enters_a_segmentor_by_the_options_of_the_docstrings(tmp_path):
    """As ``{'model': …}`` with a 1000-class head, the form of a classification checkpoint."""
    import mmseg.models  # noqa: F401

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
    name = "semantic_fpn_pola-pvt-t_80k_ade20k"
    options = re.search(
        r"--cfg-options (.+)", docstring_of(FOLDER / f"{name}.py").replace("\n", " ")
    )
    assert options
    cfg = load_config(FOLDER / f"{name}.py", options[1].replace("FILE", str(path)).split())
    assert cfg.model.backbone.init_cfg == dict(type="Pretrained", checkpoint=str(path))
    model = MODELS.build(small(name)[0])
    model.backbone.init_cfg = cfg.model.backbone.init_cfg
    load_pretrained(take_pretrained(model))
    wanted = classifier.backbone.state_dict()
    got = {k: v for k, v in model.backbone.state_dict().items() if not k.startswith("norms.")}
    assert set(got) == set(wanted)
    assert all(torch.equal(value, wanted[key]) for key, value in got.items())


# Tables -------------------------------------------------------------------------------------------


class Heads(nn.Module):
    """What follows the backbone when a picture is segmented."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.neck = model.neck if hasattr(model, "neck") else nn.Identity()
        self.head = model.decode_head

    def forward(self, maps: list[torch.Tensor]) -> torch.Tensor:
        return self.head(self.neck(maps))


def empty(*shape: int) -> torch.Tensor:
    return torch.empty(*shape, device="meta")


def size_of(name: str) -> tuple[int, int]:
    """Of the image whose multiply-adds the tables give: that of the crop."""
    words = parts(name)
    if words["data"] == "digit-scenes":
        return 160, 160
    side = int(words["crop"] or 512)
    return side, 1024 if words["data"] == "cityscapes" else side


@cache
def backbone_macs(attention: str, variant: str, size: tuple[int, int]) -> float:
    """The same for every head."""
    name = next(n for n in NAMES if f"_{attention}-{variant}_" in n)
    return count_macs(on_meta(name).backbone, empty(1, 3, *size))


_HEAD_MACS: dict[str, float] = {}


def macs(name: str) -> float:
    words, (height, width), model = parts(name), size_of(name), on_meta(name)
    cfg = config(name).model
    key = str((cfg.get("neck"), cfg.decode_head, height, width))
    if key not in _HEAD_MACS:
        maps = [
            empty(1, channels, height // stride, width // stride)
            for channels, stride in zip(
                model.backbone.channels, model.backbone.strides, strict=True
            )
        ]
        _HEAD_MACS[key] = count_macs(Heads(model), maps)
    shared = backbone_macs(words["attention"], variant(name), (height, width))
    return (shared + _HEAD_MACS[key]) / 1e9


def rows() -> list[dict[str, Any]]:
    path = FOLDER / "metafile.yml"
    return yaml.safe_load(path.read_text(encoding="utf-8"))["recipes"]


def test_metafile_of_segmentation_lists_every_recipe():
    assert [row["config"] for row in rows()] == sorted(path.name for path in RECIPES)


@pytest.mark.parametrize("row", rows(), ids=lambda row: row["config"])
def test_tables_of_segmentation_give_the_measured_size(row):
    name = row["config"].removesuffix(".py")
    digits = 1 if name in LITERATURE else 2
    assert row["params_m"] == pytest.approx(parameters(on_meta(name)) / 1e6, abs=0.0051)
    assert row["macs_g"] == round(macs(name), digits)
    assert (row["miou"] is None) == (row["source"] is None)
    readme = (FOLDER / "README.md").read_text(encoding="utf-8")
    line = next(line for line in readme.splitlines() if f"[{name}]({name}.py)" in line)
    docstring = docstring_of(FOLDER / row["config"]).replace("\n", " ")
    assert f"| {row['params_m']:.2f} | {row['macs_g']:.{digits}f} |" in line
    assert f"{row['params_m']:.2f} M parameters" in docstring
    height, width = size_of(name)
    assert f"{row['macs_g']:.{digits}f} G multiply-adds at {height}x{width}" in docstring
    if row["source"]:
        assert f"| {row['miou']:.1f} | {row['source']} |" in line
        if name in LITERATURE:
            assert f"Expected: {row['miou']:.1f} mIoU ({row['source']}" in docstring
        else:
            assert f"mIoU {row['miou']:.1f}" in docstring
    elif name in LITERATURE:
        assert "not found here, not measured" in line
        assert "Expected: not found here, not measured." in docstring
