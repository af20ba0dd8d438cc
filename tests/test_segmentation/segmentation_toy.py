"""Scenes of boxes and bars with their masks, and shipped recipes on them."""

from __future__ import annotations

import hashlib
import json
import os
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from mmengine.dist import get_rank, is_distributed
from mmengine.hooks import Hook
from mmengine.model import BaseModel
from mmengine.structures import PixelData
from PIL import Image
from tool_runs import ROOT, scalars

from polaformer.engine.state import unwrapped
from polaformer.registry import HOOKS, MODELS

CLASSES = ("background", "box", "bar")
COLOURS = ((110, 110, 110), (230, 60, 40), (40, 80, 220))
RECIPES = {
    "semantic_fpn": "semantic_fpn_pola-pvt-nano_digit-scenes",
    "upernet": "upernet_pola-swin-nano_digit-scenes",
}


def make_scenes(
    folder: Path, sizes: Sequence[tuple[int, int]] = ((64, 64),) * 6, seed: int = 0
) -> Path:
    """PNG files ``images/N.png`` of (width, height) with a box and a bar, and ``masks/N.png``.

    A strip at the right edge of every second mask is ignored.
    """
    rng = np.random.default_rng(seed)
    for name in ("images", "masks"):
        (folder / name).mkdir(parents=True)
    for number, (width, height) in enumerate(sizes):
        mask = np.zeros((height, width), np.uint8)
        left, top = rng.integers(0, width // 3), rng.integers(0, height // 3)
        mask[top : top + height // 3, left : left + width // 3] = 1
        mask[height * 3 // 4 : height * 3 // 4 + height // 8, width // 4 :] = 2
        pixels = np.array(COLOURS)[mask] + rng.integers(-20, 20, (height, width, 3))
        if number % 2:
            mask[:, -3:] = 255
        Image.fromarray(pixels.astype(np.uint8)).save(folder / "images" / f"{number}.png")
        Image.fromarray(mask).save(folder / "masks" / f"{number}.png")
    return folder


def recipe(
    path: Path,
    head: str,
    data: Path,
    val: Path | None = None,
    *,
    classes: Sequence[str] = CLASSES,
    batch_size: int = 2,
    extra: str = "",
) -> Path:
    """Write a child of the shipped nano recipe with ``head`` on ``data``, and its child ``extra``.

    Images are cut to 64 x 64 pixels; 6 iterations with a validation after each 3.
    """
    number = len(classes)
    model: dict[str, Any] = {"decode_head": {"num_classes": number}}
    if head == "upernet":
        model["auxiliary_head"] = {"num_classes": number}
    lines = [
        f"_base_ = '{ROOT / 'configs' / 'segmentation' / RECIPES[head]}.py'",
        f"classes = {tuple(classes)}",
        f"model = {model}",
        f"train_dataloader = {_loader(data, batch_size, _train_steps())}",
        f"val_dataloader = test_dataloader = {_loader(val or data, 1, _test_steps())}",
        "train_cfg = dict(max_iters=6, val_interval=3)",
        "auto_scale_lr = dict(enable=False)",
        "default_hooks = dict(logger=dict(interval=1), checkpoint=dict(max_keep_ckpts=-1))",
    ]
    parent = path.with_name(f"base_{path.name}")
    parent.write_text("\n".join(lines) + "\n")
    path.write_text(f"_base_ = '{parent}'\n{extra}\n")
    return path


def _loader(data: Path, batch_size: int, steps: list[dict]) -> dict[str, Any]:
    folders = {"img_path": "images", "seg_map_path": "masks"}
    dataset = {"data_root": str(data), "data_prefix": folders, "pipeline": steps}
    return {"batch_size": batch_size, "num_workers": 0, "dataset": dataset}


def _train_steps() -> list[dict]:
    return [
        {"type": "polaformer.LoadImage"},
        {"type": "polaformer.LoadMask"},
        {"type": "RandomResize", "scale": (64, 64), "ratio_range": (0.9, 1.5), "keep_ratio": True},
        {"type": "RandomCrop", "crop_size": (48, 48)},
        {"type": "RandomFlip", "prob": 0.5},
        {"type": "PhotoMetricDistortion"},
        {"type": "PackSegInputs"},
    ]


def _test_steps() -> list[dict]:
    return [
        {"type": "polaformer.LoadImage"},
        {"type": "Resize", "scale": (64, 64), "keep_ratio": True},
        {"type": "polaformer.LoadMask"},
        {"type": "PackSegInputs"},
    ]


def results(work_dir: Path) -> dict[str, Any]:
    """What a test has written: metrics, and the predicted pixels of every image; no file names."""
    content = json.loads((work_dir / "metrics.json").read_text())
    found = {key: value for key, value in content.items() if key not in ("checkpoint", "config")}
    for path in sorted((work_dir / "predictions").rglob("*.png")):
        found[path.name] = np.asarray(Image.open(path)).tolist()
    return found


def validated(work_dir: Path) -> dict[str, float]:
    """Metrics of the last validation of a run."""
    last = [line for line in scalars(work_dir) if "val/mIoU" in line][-1]
    return {k.removeprefix("val/"): v for k, v in last.items() if k.startswith("val/")}


# For ``custom_imports=dict(imports=["segmentation_toy"])`` ---------------------------------------


@HOOKS.register_module()
class ToyKill(Hook):
    """End the process after some step as a power cut does, once what it writes is written."""

    priority = "LOWEST"

    def __init__(self, step: int) -> None:
        self.step = step

    def after_train_iter(
        self, runner: Any, batch_idx: int, data_batch: Any = None, outputs: Any = None
    ) -> None:
        if runner.iter + 1 == self.step:
            os.kill(os.getpid(), signal.SIGKILL)


@HOOKS.register_module()
class ToyState(Hook):
    """Write what each process has at the end: weights, losses, form of the wrapper."""

    def before_train(self, runner: Any) -> None:
        self.losses: list[float] = []

    def after_train_iter(
        self, runner: Any, batch_idx: int, data_batch: Any = None, outputs: Any = None
    ) -> None:
        self.losses.append(float(outputs["loss"]))

    def after_train(self, runner: Any) -> None:
        digest = hashlib.sha256()
        for name, value in unwrapped(runner.model).named_parameters():
            digest.update(name.encode() + value.detach().numpy().tobytes())
        note = {
            "weights": digest.hexdigest(),
            "losses": self.losses,
            "search": getattr(runner.model, "find_unused_parameters", None),
            "distributed": is_distributed(),
        }
        (Path(runner.work_dir) / f"rank_{get_rank()}.json").write_text(json.dumps(note))


@MODELS.register_module()
class ToyMap(BaseModel):
    """Predicts one given map for every image, whatever it shows."""

    def __init__(self, labels: list[list[int]], data_preprocessor: dict | None = None) -> None:
        super().__init__(data_preprocessor)
        self.labels = torch.tensor(labels, dtype=torch.uint8)[None]
        self.number = torch.nn.Parameter(torch.ones(1))

    def forward(self, inputs: Any, data_samples: Any = None, mode: str = "tensor") -> Any:
        if mode == "loss":
            return {"loss": self.number.square().sum()}
        for sample in data_samples:
            sample.pred_sem_seg = PixelData(data=self.labels.clone())
        return data_samples
