"""Pictures with rectangles in COCO's format, and tiny detectors on them."""

from __future__ import annotations

import hashlib
import json
import os
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from mmengine.dist import get_rank, is_distributed
from mmengine.hooks import Hook
from PIL import Image
from tool_runs import ROOT

from polaformer.engine.state import unwrapped
from polaformer.registry import HOOKS

CATEGORIES = [{"id": 7, "name": "cat"}, {"id": 3, "name": "dog"}, {"id": 90, "name": "Bird"}]
CLASSES = ("cat", "dog", "Bird")
COLOURS = {7: (220, 40, 40), 3: (40, 200, 60), 90: (50, 70, 230)}
SIZE = (128, 96)
"""Width and height."""

DIMS = (16, 32, 64, 128)
ARCHS = {
    "polaformer.PolaPVT": {"embed_dims": DIMS, "depths": (1, 1, 1, 1), "num_heads": (1, 2, 4, 8)},
    "polaformer.PolaSwin": {"embed_dim": 16, "depths": (1, 1, 1, 1), "num_heads": (1, 2, 4, 8)},
}
DETECTORS = ("retinanet", "mask_rcnn", "cascade_mask_rcnn")


# Data ---------------------------------------------------------------------------------------------


def corners(box: Sequence[float]) -> list[float]:
    x, y, w, h = box
    return [x, y, x + w, y, x + w, y + h, x, y + h]


def make_data(
    folder: Path,
    sizes: Sequence[tuple[int, int]] = (SIZE,) * 6,
    empty: Sequence[int] = (),
    seed: int = 0,
) -> Path:
    """PNG files with one to three filled rectangles on noise, ``objects.json``; the folder.

    ``sizes`` are width and height of each picture, ``empty`` the positions of pictures that show
    nothing.
    """
    rng = np.random.default_rng(seed)
    (folder / "images").mkdir(parents=True)
    images, annotations = [], []
    for i, (width, height) in enumerate(sizes):
        pixels = rng.integers(90, 140, (height, width, 3)).astype(np.uint8)
        for k in range(0 if i in empty else 1 + i % 3):
            # One third of the width each, so that rectangles do not hide one another.
            left = int(k * width / 3 + rng.integers(0, max(width // 12, 1)))
            top = int(rng.integers(0, max(height // 3, 1)))
            box = [left, top, max(width // 4, 2), max(height // 2, 2)]
            category = (7, 3, 90)[(i + k) % 3]
            pixels[top : top + box[3], left : left + box[2]] = COLOURS[category]
            annotations.append(
                {"id": len(annotations) + 1, "image_id": 10 + i, "category_id": category}
                | {"bbox": box, "area": box[2] * box[3], "iscrowd": 0}
                | {"segmentation": [corners(box)]}
            )
        name = f"{i}.png"
        Image.fromarray(pixels).save(folder / "images" / name)
        images.append({"id": 10 + i, "file_name": name, "width": width, "height": height})
    write_objects(folder, images, annotations)
    return folder


def write_objects(folder: Path, images: list[dict], annotations: list[dict]) -> None:
    content = {"images": images, "categories": CATEGORIES, "annotations": annotations}
    (folder / "objects.json").write_text(json.dumps(content))


def read_objects(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "objects.json").read_text())


def digests(folder: Path) -> dict[str, str]:
    """Every file below ``folder`` with a digest of its content."""
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


# Recipes ------------------------------------------------------------------------------------------


def recipe(
    path: Path,
    detector: str,
    data: Path,
    val: Path | None = None,
    *,
    backbone: str = "polaformer.PolaPVT",
    classes: Sequence[str] = CLASSES,
    size: tuple[int, int] = SIZE,
    extra: str = "",
) -> Path:
    """Write a recipe over the shipped bases: a tiny detector on ``data``, and a child ``extra``."""
    masks = detector != "retinanet"
    base = ROOT / "configs" / "_base_"
    parts = ["runtime", "tasks/detection", f"models/{detector}", "schedules/1x"]
    parts.append("datasets/coco_instance" if masks else "datasets/coco_detection")
    stages = (0, 1, 2, 3) if masks else (1, 2, 3)
    model = {
        "backbone": {"type": backbone, "arch": ARCHS[backbone], "img_size": 128},
        "neck": {"in_channels": [DIMS[i] for i in stages], "out_channels": 16},
        **(_two_stages(detector) if masks else _one_stage()),
    }
    train = _loader(data, 2, _train_steps(size, masks))
    train["dataset"] |= {"images_without_objects": "use", "min_size": 0}
    lines = [
        f"_base_ = {[str(base / f'{part}.py') for part in parts]}",
        f"classes = {tuple(classes)}",
        f"model = {model}",
        f"train_dataloader = {train}",
        f"val_dataloader = test_dataloader = {_loader(val or data, 1, _test_steps(size))}",
        "param_scheduler = dict(_delete_=True, type='ConstantLR', factor=1.0)",
        "train_cfg = dict(max_epochs=2)",
        "default_hooks = dict(logger=dict(interval=1))",
        "sync_bn = None",
    ]
    parent = path.with_name(f"base_{path.name}")
    parent.write_text("\n".join(lines) + "\n")
    path.write_text(f"_base_ = '{parent}'\n{extra}\n")
    return path


def _loader(data: Path, batch_size: int, steps: list[dict]) -> dict[str, Any]:
    dataset = {"data_root": str(data), "ann_file": "objects.json", "pipeline": steps}
    return {
        "batch_size": batch_size,
        "num_workers": 0,
        "persistent_workers": False,
        "dataset": {**dataset, "data_prefix": {"img": "images/"}},
    }


def _train_steps(size: tuple[int, int], masks: bool) -> list[dict]:
    return [
        {"type": "polaformer.LoadImage"},
        {"type": "LoadAnnotations", "with_bbox": True, "with_mask": masks},
        {"type": "Resize", "scale": size, "keep_ratio": True},
        {"type": "RandomFlip", "prob": 0.5},
        {"type": "PackDetInputs"},
    ]


def _test_steps(size: tuple[int, int]) -> list[dict]:
    resize = {"type": "Resize", "scale": size, "keep_ratio": True}
    return [{"type": "polaformer.LoadImage"}, resize, {"type": "PackDetInputs"}]


def _one_stage() -> dict[str, Any]:
    head = {"in_channels": 16, "feat_channels": 16, "stacked_convs": 1}
    # Every box counts, so that a hardly trained model has detections to compare.
    return {"bbox_head": head, "test_cfg": {"score_thr": 0.0}}


def _two_stages(detector: str) -> dict[str, Any]:
    few = {"nms_pre": 100, "max_per_img": 50}
    narrow = {"in_channels": 16, "fc_out_channels": 32}
    box_head: Any = narrow
    if detector.startswith("cascade"):
        box_head = [_cascade_head(spread) | narrow for spread in (0.1, 0.05, 0.033)]
    return {
        "rpn_head": {"in_channels": 16, "feat_channels": 16},
        "roi_head": {
            "bbox_roi_extractor": {"out_channels": 16},
            "bbox_head": box_head,
            "mask_roi_extractor": {"out_channels": 16},
            "mask_head": {"num_convs": 1, "in_channels": 16, "conv_out_channels": 16},
        },
        "train_cfg": {"rpn_proposal": few},
        "test_cfg": {"rpn": few, "rcnn": {"score_thr": 0.0, "max_per_img": 20}},
    }


def _cascade_head(spread: float) -> dict[str, Any]:
    """As in the base, with one convolution; a list is replaced as a whole."""
    stds = [spread, spread, 2 * spread, 2 * spread]
    return {
        "type": "ConvFCBBoxHead",
        "num_shared_convs": 1,
        "num_shared_fcs": 1,
        "conv_out_channels": 16,
        "roi_feat_size": 7,
        "bbox_coder": {"type": "DeltaXYWHBBoxCoder", "target_stds": stds},
        "reg_decoded_bbox": True,
        "norm_cfg": {"type": "BN"},
        "loss_cls": {"type": "CrossEntropyLoss"},
        "loss_bbox": {"type": "GIoULoss", "loss_weight": 10.0},
    }


def results(work_dir: Path) -> dict[str, Any]:
    """What a test has written: metrics, and the detections of every image; no names of files."""
    content = json.loads((work_dir / "metrics.json").read_text())
    found = {key: value for key, value in content.items() if key not in ("checkpoint", "config")}
    for path in sorted(work_dir.glob("predictions.*.json")):
        found[path.name] = json.loads(path.read_text())
    return found


# Hooks, for ``custom_imports=dict(imports=["detection_toy"])`` -----------------------------------


@HOOKS.register_module()
class ToyStop(Hook):
    """Ask the run to stop after some step, as a batch system does."""

    def __init__(self, step: int) -> None:
        self.step = step

    def after_train_iter(
        self, runner: Any, batch_idx: int, data_batch: Any = None, outputs: Any = None
    ) -> None:
        if runner.iter + 1 == self.step:
            os.kill(os.getpid(), signal.SIGTERM)


@HOOKS.register_module()
class ToyRank(Hook):
    """Write what each process has at the end: weights, losses, images, form of the wrapper."""

    def before_train(self, runner: Any) -> None:
        self.losses: list[float] = []
        self.objects: list[list[int]] = []

    def after_train_iter(
        self, runner: Any, batch_idx: int, data_batch: Any = None, outputs: Any = None
    ) -> None:
        self.losses.append(float(outputs["loss"]))
        samples = data_batch["data_samples"]
        self.objects.append([len(sample.gt_instances) for sample in samples])

    def after_train(self, runner: Any) -> None:
        digest = hashlib.sha256()
        for name, value in unwrapped(runner.model).state_dict().items():
            digest.update(name.encode() + value.numpy().tobytes())
        note = {
            "weights": digest.hexdigest(),
            "losses": self.losses,
            "objects": self.objects,
            "search": getattr(runner.model, "find_unused_parameters", None),
            "distributed": is_distributed(),
        }
        path = Path(runner.work_dir) / f"rank_{get_rank()}.json"
        path.write_text(json.dumps(note))
