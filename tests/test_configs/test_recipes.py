"""Every shipped recipe: its form, its name, its published numbers, its size, and one step of it."""

from __future__ import annotations

import copy
import math
import re
from functools import cache

import pytest
import torch
import yaml
from mmengine.config import Config
from recipe_files import (
    BACKBONES,
    ROOT,
    SIZES,
    build_optim_wrapper,
    docstring_of,
    lines_of_code,
    parameters,
    shipped,
    top_level_names,
)

import polaformer.registry as registry
from polaformer.config.check import check_config
from polaformer.config.load import load_config
from polaformer.models import ImageClassifier

FOLDER = ROOT / "configs" / "classification"


RECIPES = shipped(FOLDER)
NAMES = [path.stem for path in RECIPES]
NAME = re.compile(
    r"(?P<attention>[a-z]+)-(?P<backbone>[a-z0-9]+)-(?P<size>[a-z0-9]+)"
    r"(?:_(?P<schedule>\d+)e)?_(?P<data>imagenet|digits)(?:-(?P<crop>\d+))?"
)
IMAGENET = [name for name in NAMES if "imagenet" in name]
POLA_IMAGENET = [name for name in IMAGENET if name.startswith("pola-")]
TWINS = [name for name in NAMES if name.startswith("softmax-")]

# Published hyper-parameters: variant -> batch per GPU (of 8), gradient clip, drop path.
PER_VARIANT = {
    "pola-pvt-t_310e_imagenet-224": (128, None, 0.1),
    "pola-pvt-s_310e_imagenet-224": (64, None, 0.1),
    "pola-pvt-m_310e_imagenet-224": (64, 1.0, 0.3),
    "pola-pvt-l_310e_imagenet-224": (32, 1.0, 0.3),
    "pola-swin-t_300e_imagenet-224": (128, 5.0, 0.2),
    "pola-swin-s_300e_imagenet-224": (128, 5.0, 0.3),
    "pola-swin-b_300e_imagenet-224": (64, 5.0, 0.5),
    "pola-swin-b_30e_imagenet-384": (32, 5.0, 0.5),
}
# Schedule -> base lr, warm-up lr, end lr (each for 512 images), cosine epochs, warm-up epochs,
# epochs in all, weight decay.
PER_SCHEDULE = {
    "310": (5e-4, 1e-6, 1e-5, 300, 5, 310, 0.05),
    "300": (5e-4, 5e-7, 5e-6, 300, 20, 300, 0.05),
    "30": (2e-5, 2e-8, 2e-7, 30, 5, 30, 1e-8),
}
# Parameters in millions and multiply-adds in billions, measured on the published code.
SIZE = {
    "pola-swin-t_300e_imagenet-224": (29.286, 4.659),
    "pola-swin-s_300e_imagenet-224": (50.604, 8.910),
    "pola-swin-b_300e_imagenet-224": (89.138, 15.708),
    "pola-swin-b_30e_imagenet-384": (91.599, 47.224),
    "pola-pvt-t_310e_imagenet-224": (12.925, 2.257),
    "pola-pvt-s_310e_imagenet-224": (23.157, 4.469),
    "pola-pvt-m_310e_imagenet-224": (39.966, 7.815),
    "pola-pvt-l_310e_imagenet-224": (54.367, 11.517),
    "softmax-swin-t_300e_imagenet-224": (28.288, 4.491),
    "softmax-swin-s_300e_imagenet-224": (49.606, 8.741),
}
UNUSED_PVT_NORM = 2 * 512  # in every published PVT checkpoint, used by none


@cache
def loaded(name: str) -> Config:
    return load_config(FOLDER / f"{name}.py")


def config(name: str) -> Config:
    return copy.deepcopy(loaded(name))


def parts(name: str) -> dict[str, str]:
    match = NAME.fullmatch(name)
    assert match, f"{name} does not follow the rule for names"
    return match.groupdict()


@cache
def on_meta(name: str) -> ImageClassifier:
    with torch.device("meta"):
        return registry.MODELS.build(config(name).model)


def test_every_published_variant_has_a_recipe_and_a_twin():
    assert set(PER_VARIANT) == set(POLA_IMAGENET)
    pola = {name for name in NAMES if name.startswith("pola-")}
    assert {name.replace("softmax-", "pola-", 1) for name in TWINS} == pola
    assert {"pola-pvt-nano_digits", "pola-swin-nano_digits"} <= pola


@pytest.mark.parametrize("path", RECIPES, ids=NAMES)
def test_form(path):
    text = path.read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 30
    docstring = docstring_of(path)
    assert "tools/train.py" in docstring
    assert f"configs/classification/{path.name}" in docstring
    assert "Expected:" in docstring
    assert "Cost:" in docstring


@pytest.mark.parametrize("name", NAMES)
def test_name_agrees_with_content(name):
    cfg, words = loaded(name), parts(name)
    backbone = cfg.model.backbone
    if words["attention"] == "timm":
        assert backbone.type == "polaformer.TimmBackbone"
    else:
        assert backbone.type == BACKBONES[words["backbone"]]
        assert backbone.arch == SIZES[words["size"]]
        assert backbone.get("attention", "pola") == words["attention"]
    if words["schedule"]:
        assert cfg.train_cfg.max_epochs == int(words["schedule"])
    kind, root = {
        "imagenet": ("polaformer.ImageNet", "data/imagenet"),
        "digits": ("polaformer.ImageFolder", "data/digits"),
    }[words["data"]]
    crop = int(words["crop"] or 32)
    for loader in (cfg.train_dataloader, cfg.val_dataloader, cfg.test_dataloader):
        assert loader.dataset.type == kind
        assert root in (loader.dataset.get("data_root"), loader.dataset.get("root"))
        assert loader.dataset.transforms.input_size == crop
    assert backbone.get("img_size", crop) == crop


@pytest.mark.parametrize("name", NAMES)
def test_dry_run_on_eight_gpus_finds_it_sound(name):
    plan = check_config(loaded(name), require_data=False, processes=8, sizes=False)
    assert plan.problems == []
    twin = name.replace("softmax-", "pola-", 1)
    if twin in PER_VARIANT:
        lr = PER_SCHEDULE[parts(twin)["schedule"]][0]
        assert plan.lr == pytest.approx(lr * 8 * PER_VARIANT[twin][0] / 512)


@pytest.mark.parametrize("name", TWINS)
def test_a_twin_differs_in_its_attention_only(name):
    twin, other = config(name), config(name.replace("softmax-", "pola-", 1))
    assert twin.model.backbone.pop("attention") == "softmax"
    for cfg in (twin, other):
        cfg.pop("work_dir", None)
        cfg.load_from = cfg.load_from and cfg.load_from.replace("softmax-", "pola-", 1)
    assert twin.to_dict() == other.to_dict()
    assert lines_of_code(FOLDER / f"{name}.py") <= 3


def test_every_top_level_key_has_one_owner_among_the_bases():
    owners: dict[str, set[str]] = {}
    for path in (ROOT / "configs" / "_base_").rglob("*.py"):
        kind = path.relative_to(ROOT / "configs" / "_base_").parts[0]
        for key in top_level_names(path):
            owners.setdefault(key, set()).add(kind)
    assert {key: kinds for key, kinds in owners.items() if len(kinds) > 1} == {}


@pytest.mark.parametrize("name", POLA_IMAGENET)
def test_published_hyper_parameters(name):
    cfg = loaded(name)
    per_gpu, clip, drop_path = PER_VARIANT[name]
    assert cfg.train_dataloader.batch_size == per_gpu
    assert (cfg.optim_wrapper.clip_grad or {}).get("max_norm") == clip
    assert on_meta(name).backbone.drop_path_rates(drop_path) == block_rates(name)
    optimizer = cfg.optim_wrapper.optimizer
    assert (optimizer.type, optimizer.betas, optimizer.eps) == ("AdamW", (0.9, 0.999), 1e-8)
    assert optimizer.weight_decay == PER_SCHEDULE[parts(name)["schedule"]][-1]
    assert cfg.optim_wrapper.paramwise_cfg.decay_rule == "published"
    assert cfg.model.head.loss.label_smoothing == 0.1
    assert cfg.train_dataloader.drop_last is True
    preprocessor = cfg.model.data_preprocessor
    assert preprocessor.random_erasing == dict(prob=0.25, mode="pixel", count=1)
    assert preprocessor.mixup == dict(
        mixup_alpha=0.8, cutmix_alpha=1.0, prob=1.0, switch_prob=0.5, mode="batch"
    )
    train = cfg.train_dataloader.dataset.transforms
    assert (train.auto_augment, train.color_jitter) == ("rand-m9-mstd0.5-inc1", 0.4)
    test = cfg.test_dataloader.dataset.transforms
    assert (train.interpolation, test.interpolation) == ("bicubic", "bicubic")
    assert (test.resize, test.input_size / test.crop_pct) == ("squash", test.input_size * 8 / 7)
    assert test.get("test_crop", True) is (parts(name)["crop"] == "224")
    assert cfg.custom_hooks == []  # no moving average of the weights


def block_rates(name: str) -> list[list[float]]:
    """Drop-path rates of the built blocks."""
    rates = [
        [getattr(block.drop_path, "drop_prob", 0.0) for block in stage.blocks]
        for stage in on_meta(name).backbone.stages
    ]
    return [[rate or 0.0 for rate in stage] for stage in rates]


@pytest.mark.parametrize("name", POLA_IMAGENET)
def test_learning_rate_at_key_steps(name):
    base, warm, end, cosine, warmup, epochs, _ = PER_SCHEDULE[parts(name)["schedule"]]
    cfg = loaded(name)
    images = 8 * cfg.train_dataloader.batch_size
    assert cfg.auto_scale_lr.enable
    lr = cfg.optim_wrapper.optimizer.lr * images / cfg.auto_scale_lr.base_batch_size
    share = images / 512
    assert lr == pytest.approx(base * share)
    steps = 1_281_167 // images
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=lr)
    arguments = {"optimizer": optimizer, "epoch_length": steps}
    schedule = registry.PARAM_SCHEDULERS.build(cfg.param_scheduler, default_args=arguments)

    def rate(epoch: float) -> float:
        return lr * schedule.factor(round(epoch * steps))

    assert rate(0) == pytest.approx(warm * share)
    assert rate(warmup / 2) == pytest.approx((warm + base) / 2 * share, rel=1e-3)
    angle = math.pi * warmup / cosine
    after_warmup = end + (base - end) * (1 + math.cos(angle)) / 2
    assert rate(warmup) == pytest.approx(after_warmup * share)
    assert rate(cosine / 2) == pytest.approx((base + end) / 2 * share, rel=1e-3)
    assert rate(cosine - 1 / steps) == pytest.approx(end * share, rel=1e-3)
    assert rate(epochs) == pytest.approx(end * share)
    assert cfg.train_cfg.max_epochs == epochs


@pytest.mark.parametrize("name", sorted(SIZE))
def test_size_equals_the_published_model(name):
    params, macs = SIZE[name]
    model = on_meta(name)
    count = parameters(model)
    unused = UNUSED_PVT_NORM if "pvt" in name else 0
    assert round((count + unused) / 1e6, 3) == params
    if name == "pola-swin-b_30e_imagenet-384":
        return
    assert multiply_adds(model, 224) / 1e9 == pytest.approx(macs, abs=6e-4)


def multiply_adds(model: ImageClassifier, side: int) -> int:
    from torch.nn.attention import SDPBackend, sdpa_kernel
    from torch.utils.flop_counter import FlopCounterMode

    images = torch.empty(1, 3, side, side, device="meta")
    model.eval()
    # The plain form of softmax attention, because torch counts the fused one as nothing.
    with FlopCounterMode(display=False) as counter, torch.no_grad(), sdpa_kernel(SDPBackend.MATH):
        model(images)
    return counter.get_total_flops() // 2


@pytest.mark.parametrize("name", NAMES)
def test_one_small_step(name):
    cfg = config(name)
    torch.manual_seed(0)
    if cfg.model.backbone.type == "polaformer.TimmBackbone":
        pytest.importorskip("timm")
    else:
        cfg.model.backbone.update(arch="nano", img_size=32)
    model = registry.MODELS.build(cfg.model)
    wrapper = build_optim_wrapper(model, cfg.optim_wrapper)
    data = {
        "inputs": torch.randint(0, 256, (3, 3, 32, 32), dtype=torch.uint8),
        "labels": torch.randint(0, model.head.num_classes, (3,)),
        "indices": torch.arange(3),
    }
    before = model.head.fc.weight.detach().clone()
    logs = model.train_step(data, wrapper)
    assert logs["loss"].isfinite()
    trained = [p for p in model.parameters() if p.requires_grad]
    assert all(torch.isfinite(p).all() for p in trained)
    assert not torch.equal(before, model.head.fc.weight)
    assert len(model.eval().val_step(data)) == 3


def test_metafile_and_readme_list_every_recipe_with_its_size():
    rows = yaml.safe_load((FOLDER / "metafile.yml").read_text(encoding="utf-8"))["recipes"]
    assert [row["config"] for row in rows] == sorted(path.name for path in RECIPES)
    readme = (FOLDER / "README.md").read_text(encoding="utf-8")
    for row in rows:
        name = row["config"].removesuffix(".py")
        count = parameters(on_meta(name))
        assert row["params_m"] == pytest.approx(count / 1e6, abs=0.0051), name
        assert (row["top1"] is None) == (row["source"] is None), name
        line = next(line for line in readme.splitlines() if f"[{name}]" in line)
        assert f" {row['params_m']:.2f} " in line
        assert f" {'' if row['top1'] is None else row['top1']} ".replace("  ", " ") in line
        docstring = docstring_of(FOLDER / row["config"])
        assert f"{row['params_m']:.2f} M parameters" in docstring
