"""A model of two layers and a dataset of random vectors, small enough to train in a second."""

from __future__ import annotations

import copy
import json
import os
import random
import signal
from pathlib import Path
from typing import Any

import numpy as np
import torch
from mmengine.config import Config
from mmengine.evaluator import BaseMetric
from mmengine.hooks import Hook
from mmengine.model import BaseModel
from torch import nn

from polaformer.engine.runner import Runner
from polaformer.registry import DATASETS, HOOKS, METRICS, MODELS


@MODELS.register_module()
class ToyBackbone(nn.Module):
    def __init__(self, width: int = 8, init_cfg: dict | None = None) -> None:
        super().__init__()
        self.init_cfg = init_cfg
        self.fc = nn.Linear(4, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.fc(x).relu()


@MODELS.register_module()
class ToyClassifier(BaseModel):
    """Linear, dropout, linear; 'dropout' and the noise of the data make every step random."""

    def __init__(
        self,
        width=8,
        classes=3,
        dropout=0.3,
        poison=(),
        backbone_init=None,
        init_cfg=None,
        data_preprocessor=None,
    ):
        super().__init__(data_preprocessor=data_preprocessor, init_cfg=init_cfg)
        self.backbone = ToyBackbone(width, backbone_init)
        self.head = nn.Linear(width, classes)
        self.dropout = dropout
        self.poison = set(poison)
        self.step = 0

    def forward(self, inputs, labels=None, indices=None, mode="tensor"):
        features = nn.functional.dropout(self.backbone(inputs), self.dropout, self.training)
        logits = self.head(features)
        if mode == "tensor":
            return logits
        losses = nn.functional.cross_entropy(logits.float(), labels, reduction="none")
        if mode == "loss":
            self.step += 1
            factor = float("nan") if self.step in self.poison else 1.0
            return {"loss": losses.mean() * factor}
        scores = logits.float().softmax(-1).cpu()
        return [
            {"scores": s, "label": int(t), "index": int(i), "loss": float(v)}
            for s, t, i, v in zip(scores, labels, indices, losses, strict=True)
        ]


@DATASETS.register_module()
class ToyDataset:
    def __init__(self, count=12, noise=0.1, classes=("a", "b", "c")):
        generator = torch.Generator().manual_seed(1)
        self.count, self.noise, self.classes = count, noise, tuple(classes)
        self.centres = torch.randn(len(classes), 4, generator=generator)
        self.metainfo = {"classes": self.classes}

    def __len__(self):
        return self.count

    def fingerprint(self):
        return f"toy-{self.count}"

    def __getitem__(self, index):
        label = index % len(self.classes)
        drawn = torch.rand(4) + random.random() + np.random.rand()
        return {
            "inputs": self.centres[label] + self.noise * drawn,
            "labels": label,
            "indices": int(index),
        }


@METRICS.register_module()
class ToyAccuracy(BaseMetric):
    def process(self, data_batch, data_samples):
        for sample in data_samples:
            hit = float(sample["scores"].argmax() == sample["label"])
            self.results.append((hit, sample["loss"]))

    def compute_metrics(self, results):
        hits, losses = zip(*results, strict=True)
        return {"top1": 100 * sum(hits) / len(hits), "loss": sum(losses) / len(losses)}


@HOOKS.register_module()
class ToyTrace(Hook):
    """Write ids, learning rate and data of every step to a file; die after ``kill_after`` steps."""

    priority = "LOWEST"

    def __init__(
        self, path: str, kill_after: int | None = None, kill_after_epoch: int | None = None
    ) -> None:
        self.path, self.kill_after, self.kill_after_epoch = path, kill_after, kill_after_epoch

    def after_train_epoch(self, runner):
        if self.kill_after_epoch == runner.epoch + 1:
            os.kill(os.getpid(), signal.SIGKILL)

    def after_train_iter(self, runner, batch_idx, data_batch=None, outputs=None):
        record = {
            "iter": runner.iter + 1,
            "ids": data_batch["indices"].tolist(),
            "lr": runner.message_hub.get_scalar("train/lr").current(),
            "sum": data_batch["inputs"].double().sum().item(),
            "loss": outputs["loss"].item(),
        }
        with open(self.path, "a") as stream:
            stream.write(json.dumps(record) + "\n")
        if self.kill_after == runner.iter + 1:
            os.kill(os.getpid(), signal.SIGKILL)


def iterations(count: int = 36, val_interval: int = 6, **changes: Any) -> dict[str, Any]:
    """Changes for ``toy_config`` that make it a run by iterations."""
    loop = {"_delete_": True, "type": "IterTrainLoop", "max_iters": count}
    return {
        "train_cfg": {**loop, "val_interval": val_interval},
        "train_dataloader.sampler.type": "InfiniteSampler",
        "param_scheduler": [{"type": "WarmupPolyLR", "power": 0.9, "warmup_iters": 2}],
        **changes,
    }


def toy_config(work_dir: str | Path, **changes: Any) -> Config:
    """36 iterations: 6 epochs of 12 samples in batches of 2. ``changes`` are merged in."""
    loader = {"batch_size": 2, "num_workers": 0, "collate_fn": {"type": "default_collate"}}
    config = Config(
        {
            "default_scope": "polaformer",
            "work_dir": str(work_dir),
            "model": {"type": "ToyClassifier"},
            "train_dataloader": {
                **loader,
                "dataset": {"type": "ToyDataset"},
                "sampler": {"type": "EpochSampler", "shuffle": True},
            },
            "val_dataloader": {
                **loader,
                "dataset": {"type": "ToyDataset", "count": 9},
                "sampler": {"type": "EpochSampler", "shuffle": False},
            },
            "val_evaluator": {"type": "ToyAccuracy"},
            "val_cfg": {},
            "test_dataloader": {
                **loader,
                "dataset": {"type": "ToyDataset", "count": 9},
                "sampler": {"type": "EpochSampler", "shuffle": False},
            },
            "test_evaluator": {"type": "ToyAccuracy"},
            "test_cfg": {},
            "train_cfg": {"by_epoch": True, "max_epochs": 6},
            "optim_wrapper": {
                "type": "OptimWrapper",
                "optimizer": {"type": "SGD", "lr": 0.05, "momentum": 0.9},
            },
            "param_scheduler": [
                {"type": "LinearLR", "start_factor": 0.1, "end": 10, "by_epoch": False},
                {"type": "StepLR", "step_size": 2, "by_epoch": True},
            ],
            "randomness": {"seed": 0},
        }
    )
    if changes:
        config.merge_from_dict(copy.deepcopy(changes))  # which takes '_delete_' out
    return config


def run_toy(work_dir: str | Path, **changes: Any) -> Runner:
    """Train the toy and return its runner."""
    runner = Runner.from_cfg(toy_config(work_dir, **changes))
    runner.train()
    return runner


def weights_of(runner: Runner) -> dict[str, torch.Tensor]:
    return {key: value.clone() for key, value in runner.model.state_dict().items()}


def read_lines(path: str | Path) -> list[dict]:
    return [json.loads(line) for line in Path(path).read_text().splitlines()]
