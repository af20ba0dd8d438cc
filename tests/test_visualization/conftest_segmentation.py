"""A finished segmentation run as the engine leaves it, made of a few small files."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from conftest_detection import save_picture
from conftest_visualization import write

NAME = "semantic_fpn_pola-pvt-nano_pets"
CONFUSION = [[900, 100, 0], [50, 150, 0], [0, 0, 0]]


@pytest.fixture
def segmentation_run(tmp_path: Path) -> Path:
    """800 iterations with two validations, a test of 7 images, and pictures of both."""
    work_dir = tmp_path / NAME
    (work_dir / "pictures").mkdir(parents=True)
    records: list[dict] = []
    for step in range(100, 900, 100):
        place = {"iter": step, "step": step}
        parts = {"decode.loss_ce": 100.0 / step, "decode.loss_dice": 50.0 / step}
        loss = {"loss": sum(parts.values()), **parts, "decode.acc_seg": 90.0}
        records.append({"lr": 1e-3 * (1 - step / 800), "base_lr": 1e-3, **loss, **place})
        if step % 400 == 0:
            values = {"mIoU": 50.0 + step / 80, "mAcc": 70.0, "aAcc": 90.0, "mDice": 75.0}
            told = {f"val/{key}": value for key, value in {**values, "loss": 0.5}.items()}
            records.append({**told, **place})
            save_picture(work_dir, f"iter_{step}", step // 10)
    (work_dir / "scalars.json").write_text("".join(f"{json.dumps(row)}\n" for row in records))
    dog = {"IoU": 50.0, "Acc": 75.0, "Dice": 66.6667, "truth": 200, "predicted": 250}
    background = {"IoU": 85.7143, "Acc": 90.0, "Dice": 92.3, "truth": 1000, "predicted": 950}
    owl = {"IoU": None, "Acc": None, "Dice": None, "truth": 0, "predicted": 0}
    write(
        work_dir,
        "metrics.json",
        {
            "metrics": {"mIoU": 67.8571, "mAcc": 82.5, "aAcc": 87.5, "mDice": 79.5, "loss": 0.4},
            "num_images": 7,
            "num_pixels": 1200,
            "num_ignored": 30,
            "per_class": {"background": background, "dog": dog, "owl": owl},
            "confusion": CONFUSION,
        },
    )
    (work_dir / "predictions").mkdir()
    write(work_dir, "run_card.json", {"config": f"configs/{NAME}.py", "status": "finished"})
    return work_dir
