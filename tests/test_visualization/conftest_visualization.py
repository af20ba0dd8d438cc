"""A finished run of a classifier as the engine leaves it, and files of it."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

CLASSES = ("cat", "dog", "bird")


@pytest.fixture
def finished_run(tmp_path: Path) -> Path:
    """2 epochs of 10 steps and a test of 6 images: 5 right, one dog called bird."""
    work_dir = tmp_path / "work dirs" / "pola-pvt-nano_pets"
    work_dir.mkdir(parents=True)
    labels, said = [0, 0, 1, 1, 2, 2], [0, 0, 1, 2, 2, 2]
    rows = []
    for index, (label, prediction) in enumerate(zip(labels, said, strict=True)):
        path = work_dir / f"{index}.png"
        Image.fromarray(np.full((12, 16, 3), 40 * index, np.uint8)).save(path)
        rows.append(
            {
                "index": index,
                "path": str(path),
                "label": label,
                "prediction": prediction,
                "score": 0.5 + 0.05 * index,
            }
        )
    write(work_dir, "predictions.json", rows)
    write(
        work_dir,
        "metrics.json",
        {
            "metrics": {"top1": 500 / 6, "loss": 0.25},
            "per_class": {"cat": 100.0, "dog": 50.0, "bird": 100.0},
            "support": {"cat": 2, "dog": 2, "bird": 2},
            "confusion": [[2, 0, 0], [0, 1, 1], [0, 0, 2]],
            "classes": CLASSES,
            "n": 6,
        },
    )
    write(work_dir, "run_card.json", {"command": "tools/train.py x", "versions": {"torch": "2.14"}})
    write_scalars(work_dir, lambda step: 2.0 / step)
    (work_dir / "config.py").write_text("model = dict(type='polaformer.ImageClassifier')\n")
    return work_dir


def write(work_dir: Path, name: str, value: object) -> None:
    (work_dir / name).write_text(json.dumps(value))


def scalars(loss: Callable[[int], float] = lambda step: 2.0 / step) -> list[dict]:
    """Two epochs of ten steps, every fifth logged, with a validation after each epoch."""
    records: list[dict] = []
    for epoch in (1, 2):
        for step in (10 * epoch - 5, 10 * epoch):
            rate = 1e-3 * (1 + math.cos(math.pi * step / 20)) / 2
            records.append(
                {"lr": rate, "loss": loss(step), "epoch": epoch, "iter": step, "step": step}
            )
        records.append({"top1": 60.0 + 10 * epoch, "loss": 1.0 / epoch, "step": epoch})
    return records


def write_scalars(work_dir: Path, loss: Callable[[int], float]) -> None:
    lines = [json.dumps(record) for record in scalars(loss)]
    (work_dir / "scalars.json").write_text("\n".join(lines) + "\n")
