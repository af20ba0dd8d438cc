"""A finished detection run as the engine leaves it, made of a few small files."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from conftest_visualization import write
from PIL import Image

NAME = "mask_rcnn_pola-pvt-nano_pets"
MEASURES = [f"{k}_mAP{p}" for k in ("bbox", "segm") for p in ("", "_50", "_75", "_s", "_m", "_l")]


@pytest.fixture
def detection_run(tmp_path: Path) -> Path:
    """3 epochs of 10 steps with 12 measures, a test of 7 images, and pictures of the epochs."""
    work_dir = tmp_path / NAME
    (work_dir / "pictures").mkdir(parents=True)
    records: list[dict] = []
    for epoch in (1, 2, 3):
        parts = {"loss_rpn_cls": 1.0 / epoch, "loss_bbox": 2.0 / epoch, "s0.loss_mask": 0.5}
        step = {"epoch": epoch, "iter": 10 * epoch, "step": 10 * epoch}
        records.append({"lr": 1e-4, "loss": sum(parts.values()), **parts, "acc": 90.0, **step})
        values = {f"val/{key}": (0.5, 0.75, 0.625)[epoch - 1] for key in MEASURES}
        records.append({**values, **step})
        save_picture(work_dir, f"epoch_{epoch}", 10 * epoch)
    lines = [json.dumps(record) for record in records]
    (work_dir / "scalars.json").write_text("\n".join(lines) + "\n")
    columns = {"images": 4, "objects": 9, "bbox_mAP": 0.5, "bbox_mAP_50": 0.875, "segm_mAP": 0.25}
    empty = {"images": 0, "objects": 0, "bbox_mAP": None, "bbox_mAP_50": None, "segm_mAP": None}
    write(
        work_dir,
        "metrics.json",
        {
            "metrics": dict.fromkeys(MEASURES, 0.6251),
            "num_images": 7,
            "num_objects": 9,
            "per_class": {"cat": columns, "dog": {**columns, "bbox_mAP": 0.125}, "owl": empty},
        },
    )
    write(work_dir, "predictions.bbox.json", [])
    write(work_dir, "run_card.json", {"config": f"configs/{NAME}.py", "status": "finished"})
    return work_dir


def save_picture(work_dir: Path, name: str, grey: int) -> None:
    image = Image.fromarray(np.full((60, 80, 3), grey, np.uint8))
    image.save(work_dir / "pictures" / f"{name}.png")
