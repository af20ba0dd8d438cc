"""What configs/detection/README.md promises: its commands; own data as docs/detection.md has it."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from mmengine.registry import DATASETS, TRANSFORMS, DefaultScope, init_default_scope
from PIL import Image
from recipe_files import ROOT

from polaformer.config.check import check_config
from polaformer.config.load import load_config

README = (ROOT / "configs" / "detection" / "README.md").read_text(encoding="utf-8")
FENCE = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
COMMANDS = [
    line
    for language, body in FENCE.findall(README)
    if language == "bash"
    for line in body.splitlines()
]
GUIDE = (ROOT / "docs" / "detection.md").read_text(encoding="utf-8")
(OWN_DATA,) = [body for _, body in FENCE.findall(GUIDE) if "data/pets" in body and "_base_" in body]


@pytest.fixture
def detection_scope() -> Iterator[None]:
    before = DefaultScope.get_current_instance()
    init_default_scope("mmdet")
    yield
    init_default_scope(before.scope_name if before else "mmengine")


@cache
def help_of(*words: str) -> str:
    command = [sys.executable, *words, "--help"]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout


def test_the_readme_shows_each_step():
    tools = {word for line in COMMANDS for word in shlex.split(line) if word.startswith("tools/")}
    assert tools == {f"tools/{name}.py" for name in ("check", "train", "test", "prepare_data")}


@pytest.mark.parametrize("line", COMMANDS)
def test_command_of_the_readme_exists(line):
    words = shlex.split(line)
    tool = next(i for i, word in enumerate(words) if word.startswith("tools/"))
    assert words[0] in ("python", "torchrun")
    known = help_of(*words[tool : tool + 1 + ("prepare_data" in words[tool])])
    for word in words[tool:]:
        if word.startswith("--"):
            assert re.search(rf"{word}\b", known), word
        if word.startswith("configs/"):
            assert (ROOT / word).is_file(), word


def test_the_options_for_starting_weights_load(tmp_path):
    (line,) = [line for line in COMMANDS if "init_cfg" in line]
    words = shlex.split(line)
    cfg = load_config(ROOT / words[2], words[words.index("--cfg-options") + 1 :])
    shown = 'init_cfg=dict(type="Pretrained", checkpoint="weights/pola_swin_t.pth")'
    assert shown in README
    assert cfg.model.backbone.init_cfg == dict(
        type="Pretrained", checkpoint="weights/pola_swin_t.pth"
    )


# Own data -----------------------------------------------------------------------------------------


def write_pets(root: Path) -> None:
    """Five pictures a split, one without objects; ids in any order, with gaps."""
    rng = np.random.default_rng(0)
    for split in ("train", "val"):
        (root / split).mkdir(parents=True)
        images, annotations = [], []
        for i in range(5):
            width, height = (60, 45) if i % 2 else (40, 64)
            picture = rng.integers(0, 256, (height, width, 3), np.uint8)
            Image.fromarray(picture).save(root / split / f"{i}.png")
            image = {"id": 50 - 7 * i, "file_name": f"{i}.png", "width": width, "height": height}
            images.append(image)
            if i == 2:
                continue
            left, top, side = 4 + i, 3, 20
            right, bottom = left + side, top + side
            annotations.append(
                {
                    "id": 100 + i,
                    "image_id": image["id"],
                    "category_id": (9, 4)[i % 2],
                    "bbox": [left, top, side, side],
                    "area": side * side,
                    "iscrowd": 0,
                    "segmentation": [[left, top, right, top, right, bottom, left, bottom]],
                }
            )
        categories = [{"id": 9, "name": "cat"}, {"id": 4, "name": "dog"}]
        content = {"images": images, "annotations": annotations, "categories": categories}
        (root / f"{split}.json").write_text(json.dumps(content))


@pytest.fixture(scope="module")
def pets(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the shipped configs, and data/pets beside them."""
    root = tmp_path_factory.mktemp("own")
    shutil.copytree(ROOT / "configs", root / "configs")
    write_pets(root / "data" / "pets")
    return root


def own_config(pets: Path, recipe: str, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The statements of docs/detection.md over ``recipe``, in a folder with data/pets."""
    monkeypatch.chdir(pets)
    path = pets / "configs" / "detection" / f"pets_{recipe}.py"
    path.write_text(OWN_DATA.replace("mask_rcnn_pola-swin-t_1x_coco", recipe))
    return load_config(path)


RECIPES = [
    "retinanet_pola-pvt-t_1x_coco",
    "mask_rcnn_pola-swin-t_1x_coco",
    "mask_rcnn_softmax-pvt-s_3x_coco",
    "cascade_mask_rcnn_pola-swin-t_3x_coco",
]


@pytest.mark.parametrize("recipe", RECIPES)
def test_three_lines_train_on_own_data(recipe, pets, monkeypatch, detection_scope):
    cfg = own_config(pets, recipe, monkeypatch)
    plan = check_config(cfg, sizes=False)
    assert plan.problems == []
    assert plan.data["train"].classes == ("cat", "dog")
    numbers = re.findall(r"'num_classes': (\d+)", str(cfg.model.to_dict()))
    assert numbers
    assert set(numbers) == {"2"}

    train = DATASETS.build(cfg.train_dataloader.dataset)
    assert len(train) == 4  # the one without objects is dropped
    item = train[0]
    height, width = item["inputs"].shape[1:]
    sample = item["data_samples"]
    assert item["inputs"].dtype == torch.uint8
    assert sample.img_shape == (height, width)
    assert max(height, width) <= 1333
    assert 384 <= min(height, width) <= 800
    masks = not recipe.startswith("retinanet")
    assert ("masks" in sample.gt_instances) is masks
    if masks:
        assert sample.gt_instances.masks.masks.shape[1:] == (height, width)
    assert len(sample.gt_instances.bboxes) == len(sample.gt_instances.labels) <= 1

    test = DATASETS.build(cfg.test_dataloader.dataset)
    assert len(test) == 5
    item = test[0]
    assert item["data_samples"].ori_shape == (64, 40)
    assert item["inputs"].shape == (3, 1280, 800)
    assert item["data_samples"].scale_factor == (20.0, 20.0)


def test_tta_sees_three_sizes_each_also_mirrored(pets, monkeypatch, detection_scope):
    from mmengine.dataset import Compose

    cfg = own_config(pets, RECIPES[0], monkeypatch)
    dataset = DATASETS.build(cfg.test_dataloader.dataset)
    dataset.pipeline = Compose([TRANSFORMS.build(step) for step in cfg.tta_pipeline])
    item = dataset[0]
    views = [
        (tuple(image.shape[1:]), sample.flip)
        for image, sample in zip(item["inputs"], item["data_samples"], strict=True)
    ]
    sizes = [(960, 600), (1280, 800), (1536, 960)]
    assert views == [(size, flip) for size in sizes for flip in (False, True)]
    assert torch.equal(item["inputs"][0].flip(-1), item["inputs"][1])
