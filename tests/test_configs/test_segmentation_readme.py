"""What docs/segmentation.md promises: own masks, losses for rare classes, windows and views."""

from __future__ import annotations

import re
import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from mmengine.dataset import Compose
from mmengine.registry import (
    DATASETS,
    METRICS,
    MODELS,
    TRANSFORMS,
    DefaultScope,
    init_default_scope,
)
from mmengine.structures import PixelData
from PIL import Image
from recipe_files import ROOT

from polaformer.config.check import check_config
from polaformer.config.load import load_config

README = (ROOT / "configs" / "segmentation" / "README.md").read_text(encoding="utf-8")
GUIDE = (ROOT / "docs" / "segmentation.md").read_text(encoding="utf-8")
FENCE = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
FRAGMENTS = [body for language, body in FENCE.findall(GUIDE) if language == "python"]
RECIPE = "semantic_fpn_pola-pvt-s_80k_ade20k"
NANO = {"arch": "nano", "img_size": 64}


def fragment(words: str) -> str:
    """The only example of the guide with ``words`` in it."""
    (found,) = [body for body in FRAGMENTS if words in body]
    return found


OWN_MASKS = fragment('data_root="data/roads"')


@pytest.fixture(autouse=True)
def segmentation_scope() -> Iterator[None]:
    before = DefaultScope.get_current_instance()
    init_default_scope("mmseg")
    yield
    init_default_scope(before.scope_name if before else "mmengine")


def test_the_segmentation_readme_shows_each_step():
    commands = "".join(body for language, body in FENCE.findall(README) if language == "bash")
    tools = {word for word in shlex.split(commands) if word.startswith("tools/")}
    assert tools == {f"tools/{name}.py" for name in ("check", "train", "test", "prepare_data")}


@pytest.mark.parametrize("document", [README, GUIDE], ids=["readme", "guide"])
def test_the_options_for_starting_weights_of_a_segmentor_load(document):
    (line,) = re.findall(r"^python .*init_cfg.*$", document, re.MULTILINE)
    words = shlex.split(line)
    cfg = load_config(ROOT / words[2], words[words.index("--cfg-options") + 1 :])
    wanted = dict(type="Pretrained", checkpoint="weights/pola_swin_t.pth")
    assert cfg.model.backbone.init_cfg == wanted


# Masks of your own --------------------------------------------------------------------------------


def write_masks(root: Path, values: tuple[int, ...]) -> None:
    """Four pictures a split, of two sizes, with masks of ``values`` in vertical stripes."""
    rng = np.random.default_rng(0)
    for split in ("train", "val"):
        for kind in ("images", "masks"):
            (root / split / kind).mkdir(parents=True)
        for i in range(4):
            height, width = (60, 90) if i % 2 else (80, 40)
            picture = rng.integers(0, 256, (height, width, 3), np.uint8)
            Image.fromarray(picture).save(root / split / "images" / f"{i}.png")
            stripes = np.array(values, np.uint8)[np.arange(width) * len(values) // width]
            mask = np.broadcast_to(stripes, (height, width)).copy()
            Image.fromarray(mask).save(root / split / "masks" / f"{i}.png")


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the shipped configs, and the data that the guide names beside them."""
    root = tmp_path_factory.mktemp("own")
    shutil.copytree(ROOT / "configs", root / "configs")
    write_masks(root / "data" / "roads", (0, 1, 2, 255))
    write_masks(root / "data" / "cracks", (0, 255))
    return root


def own_config(own: Path, body: str, monkeypatch: pytest.MonkeyPatch, recipe: str = RECIPE) -> Any:
    """The statements ``body`` over ``recipe``, in a folder with the data."""
    monkeypatch.chdir(own)
    path = own / "configs" / "segmentation" / f"own_{recipe}.py"
    path.write_text(body.replace(RECIPE, recipe))
    return load_config(path)


@pytest.mark.parametrize(
    "recipe, crop",
    [(RECIPE, 512), ("upernet_softmax-swin-b_160k_ade20k-640", 640)],
)
def test_three_lines_train_on_own_masks(recipe, crop, own, monkeypatch):
    cfg = own_config(own, OWN_MASKS, monkeypatch, recipe)
    plan = check_config(cfg, sizes=False)
    assert plan.problems == []
    assert plan.data["train"].classes == ("background", "road", "car")
    numbers = re.findall(r"'num_classes': (\d+)", str(cfg.model.to_dict()))
    assert numbers
    assert set(numbers) == {"3"}

    train = DATASETS.build(cfg.train_dataloader.dataset)
    item = train[0]
    height, width = item["inputs"].shape[1:]
    truth = item["data_samples"].gt_sem_seg.data
    assert truth.shape == (1, height, width)
    assert max(height, width) <= crop
    assert set(truth.unique().tolist()) <= {0, 1, 2, 255}

    test = DATASETS.build(cfg.test_dataloader.dataset)
    assert len(test) == 4
    item = test[0]
    assert item["inputs"].shape[1:] == (2 * crop, crop)
    truth = item["data_samples"].gt_sem_seg.data
    assert truth.shape == (1, 80, 40)  # the mask keeps its size
    assert truth[0, 0, ::10].tolist() == [0, 1, 2, 255]  # and ADE20K's zero rule is gone


def test_black_and_white_masks(own, monkeypatch):
    cfg = own_config(own, fragment("label_values"), monkeypatch)
    assert check_config(cfg, sizes=False).problems == []
    test = DATASETS.build(cfg.test_dataloader.dataset)
    truth = test[0]["data_samples"].gt_sem_seg.data
    assert truth[0, 0, ::20].tolist() == [0, 1]


def test_own_masks_over_the_recipe_with_lists_of_images(own, monkeypatch):
    recipe = "semantic_fpn_pola-pvt-t_40k_voc2012"
    root = 'data_root="data/roads"'
    cfg = own_config(own, OWN_MASKS, monkeypatch, recipe)
    assert any("ImageSets" in problem for problem in check_config(cfg, sizes=False).problems)
    body = OWN_MASKS.replace(root, f'{root}, ann_file=""')
    cfg = own_config(own, body, monkeypatch, recipe)
    assert check_config(cfg, sizes=False).problems == []


def test_the_option_that_leaves_photographs_as_they_are_stored(own, monkeypatch):
    (line,) = re.findall(r"^python .*exif=.*$", GUIDE, re.MULTILINE)
    words = shlex.split(line)
    monkeypatch.chdir(own)
    cfg = load_config(words[2], words[words.index("--cfg-options") + 1 :])
    picture = Image.fromarray(np.arange(64 * 64 * 3, dtype=np.uint8).reshape(64, 64, 3))
    exif = Image.Exif()
    exif[0x0112] = 3  # on its head
    picture.save(own / "turned.png", exif=exif.tobytes())
    stored = np.asarray(picture)[..., ::-1]
    sample = {"img_path": str(own / "turned.png"), "width": 64, "height": 64}
    for split in ("train", "val", "test"):
        loader = cfg[f"{split}_dataloader"].dataset.pipeline[0]
        assert np.array_equal(TRANSFORMS.build(loader)(dict(sample))["img"], stored)
    usual = TRANSFORMS.build(dict(type="polaformer.LoadImage"))(dict(sample))["img"]
    assert np.array_equal(usual, stored[::-1, ::-1])


def test_images_without_label_images(own, monkeypatch):
    folder = own / "data" / "trip" / "pictures" / "a"
    folder.mkdir(parents=True)
    Image.fromarray(np.full((40, 60, 3), 90, np.uint8)).save(folder / "1.png")
    body = fragment("seg_map_path=None")
    cfg = own_config(own, body, monkeypatch)
    assert check_config(cfg, require_data=False, sizes=False).problems == []
    dataset = DATASETS.build(cfg.test_dataloader.dataset)
    item = dataset[0]
    assert item["inputs"].shape == (3, 512, 768)
    assert "gt_sem_seg" not in item["data_samples"]
    batch = {key: [value] for key, value in item.items()}
    batch["inputs"] = [batch["inputs"][0][:, ::8, ::8]]
    metric = METRICS.build(cfg.test_evaluator)
    metric.dataset_meta = dataset.metainfo
    predicted = small_model(body, own, monkeypatch).eval().test_step(batch)
    metric.process(batch, [sample.to_dict() for sample in predicted])
    assert metric.evaluate(1) == {}
    metric.write_results(own, dataset)
    with Image.open(own / "predictions" / "a" / "1.png") as written:
        assert (written.size, written.mode) == ((60, 40), "P")


def test_views_of_the_recipes(own, monkeypatch):
    cfg = own_config(own, OWN_MASKS, monkeypatch)
    dataset = DATASETS.build(cfg.test_dataloader.dataset)
    dataset.pipeline = Compose([TRANSFORMS.build(step) for step in cfg.tta_pipeline])
    item = dataset[0]
    views = [
        (tuple(image.shape[1:]), sample.flip)
        for image, sample in zip(item["inputs"], item["data_samples"], strict=True)
    ]
    short = [256, 384, 512, 640, 768, 896]
    assert views == [((2 * side, side), flip) for side in short for flip in (False, True)]
    assert torch.equal(item["inputs"][0].flip(-1), item["inputs"][1])
    assert all(sample.gt_sem_seg.shape == (80, 40) for sample in item["data_samples"])


# Losses, heads, windows ---------------------------------------------------------------------------


def small_model(body: str, own: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The model of the statements ``body``, with the nano backbone."""
    import mmseg.models  # noqa: F401
    from mmengine.model import revert_sync_batchnorm

    cfg = own_config(own, body, monkeypatch)
    model = cfg.model
    model.backbone.update(NANO)
    model.neck.in_channels = [32, 64, 96, 128]
    torch.manual_seed(0)
    return revert_sync_batchnorm(MODELS.build(model))


def losses(model: Any, classes: int) -> dict[str, torch.Tensor]:
    """Of an image with blocks of ``classes`` classes and a margin of ignored pixels."""
    from mmseg.structures import SegDataSample

    rng = np.random.default_rng(0)
    labels = rng.integers(0, classes, (8, 8)).repeat(8, 0).repeat(8, 1)
    labels[:8] = 255
    sample = SegDataSample(metainfo={"img_shape": (64, 64), "ori_shape": (64, 64)})
    sample.gt_sem_seg = PixelData(data=torch.from_numpy(labels)[None].long())
    images = torch.from_numpy(rng.normal(size=(2, 3, 64, 64))).float()
    return model(images, [sample, sample], mode="loss")


@pytest.mark.parametrize(
    "words, classes, names",
    [
        ("class_weight=", 3, {"decode.loss_ce"}),
        ("OHEMPixelSampler", 150, {"decode.loss_ce"}),
        ("loss_weight=1.0", 150, {"decode.loss_ce", "decode.loss_dice"}),
        ("STDCHead", 150, {"decode.loss_ce", "aux.loss_ce", "aux.loss_dice"}),
        ("out_channels=1", 2, {"decode.loss_ce"}),
    ],
)
def test_losses_for_rare_classes_learn(words, classes, names, own, monkeypatch):
    model = small_model(fragment(words), own, monkeypatch)
    assert model.num_classes == classes
    found = {key: value for key, value in losses(model, classes).items() if "loss" in key}
    assert set(found) == names
    assert all(torch.isfinite(value) and value > 0 for value in found.values())
    sum(found.values()).backward()
    unused = [k for k, p in model.named_parameters() if p.requires_grad and p.grad is None]
    assert unused == []


def test_edges_beside_classes_of_ones_own(own, monkeypatch):
    body = fragment("STDCHead")
    model = small_model(f'{body}\nclasses = ("background", "road", "car")\n', own, monkeypatch)
    assert (model.num_classes, model.auxiliary_head.num_classes) == (3, 2)
    found = losses(model, 3)
    assert torch.isfinite(found["aux.loss_ce"])
    assert torch.isfinite(found["aux.loss_dice"])


def test_weights_of_the_classes_reach_the_loss(own, monkeypatch):
    model = small_model(fragment("class_weight="), own, monkeypatch)
    assert list(model.decode_head.loss_decode.class_weight) == [0.3, 1.0, 3.0]


@pytest.mark.parametrize(
    "words", ["STDCHead", "OHEMPixelSampler", '"slide"', "num_groups=32", "out_channels=1"]
)
def test_a_dry_run_of_the_guides_fragments_is_sound(words, own, monkeypatch):
    cfg = own_config(own, fragment(words), monkeypatch)
    assert check_config(cfg, require_data=False, sizes=False).problems == []


def test_another_backbone_in_upernet(own, monkeypatch):
    body = fragment("auxiliary_head=dict(in_channels=320)")
    cfg = own_config(own, body, monkeypatch)
    assert check_config(cfg, require_data=False, sizes=False).problems == []
    assert (cfg.model.backbone.type, cfg.model.backbone.arch) == ("polaformer.PolaPVT", "small")


def test_a_segmentor_of_other_classes_to_start_from(own, monkeypatch):
    """Every tensor is taken but those of the last layers, whose shapes differ."""
    from polaformer.engine.weights import load_start

    def upernet(classes: int) -> tuple[Any, Any]:
        cfg = own_config(own, body, monkeypatch)
        model = cfg.model
        model.backbone.update(NANO)
        model.decode_head.update(in_channels=[32, 64, 128, 256], channels=16, num_classes=classes)
        model.auxiliary_head.update(in_channels=128, channels=16, num_classes=classes)
        return cfg, MODELS.build(model)

    import mmseg.models  # noqa: F401

    body = fragment("allow_shape_mismatch")
    _, former = upernet(150)
    cfg, model = upernet(3)
    assert model.num_classes == 3
    path = own / cfg.load_from.checkpoint
    path.parent.mkdir(parents=True)
    torch.save({"state_dict": former.state_dict()}, path)
    load_start(model, cfg.load_from.to_dict())
    wanted = former.state_dict()
    kept = {key for key, value in model.state_dict().items() if value.shape != wanted[key].shape}
    assert kept == {
        f"{head}.conv_seg.{name}"
        for head in ("decode_head", "auxiliary_head")
        for name in ("weight", "bias")
    }
    assert all(
        torch.equal(value, wanted[key])
        for key, value in model.state_dict().items()
        if key not in kept
    )
