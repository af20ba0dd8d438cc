from __future__ import annotations

import importlib.util
import json
import os
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from conftest_visualization import write
from PIL import Image

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def tool() -> ModuleType:
    spec = importlib.util.spec_from_file_location("report_tool", ROOT / "tools" / "report.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def tested_run(tmp_path: Path) -> Path:
    """A work directory with config, weights and metrics of an untrained model on 3 images."""
    import torch

    from polaformer.checkpoint.io import write_checkpoint
    from polaformer.config.load import load_config
    from polaformer.registry import MODELS

    for index, name in enumerate(("cat", "dog", "dog")):
        folder = tmp_path / "pets" / "val" / name
        folder.mkdir(parents=True, exist_ok=True)
        Image.fromarray(np.full((32, 32, 3), 90 * index, np.uint8)).save(folder / f"{index}.png")
    work_dir = tmp_path / "run"
    work_dir.mkdir()
    overrides = {
        "test_dataloader.dataset.root": str(tmp_path / "pets"),
        "model.head.num_classes": 2,
    }
    config = ROOT / "configs" / "classification" / "pola-pvt-nano_digits.py"
    cfg = load_config(config, overrides)
    cfg.dump(work_dir / "config.py")
    torch.manual_seed(0)
    model = MODELS.build(cfg.model)
    write_checkpoint({"state_dict": model.state_dict()}, work_dir / "epoch_1.pth")
    write(work_dir, "metrics.json", {"checkpoint": "moved/epoch_1.pth", "metrics": {"top1": 50.0}})
    return work_dir


def test_the_tool_prints_where_it_wrote(
    tool: ModuleType, finished_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    assert tool.main([str(finished_run)]) == 0
    assert capsys.readouterr().out.strip() == str(finished_run / "report.html")
    assert tool.main([str(tmp_path / "nowhere"), str(finished_run)]) == 2
    captured = capsys.readouterr()
    assert captured.err.startswith("error: ")
    assert "nowhere' is not a folder" in captured.err
    assert "report.html" in captured.out


def test_predictions_are_made_from_the_tested_checkpoint(
    tool: ModuleType, tested_run: Path
) -> None:
    assert tool.main(["--predict", str(tested_run)]) == 0
    rows = json.loads((tested_run / "predictions.json").read_text())
    assert [row["label"] for row in rows] == [0, 1, 1]
    assert [Path(row["path"]).name for row in rows] == ["0.png", "1.png", "2.png"]
    assert all(row["prediction"] in (0, 1) and 0.5 <= row["score"] <= 1 for row in rows)
    assert (tested_run / "predictions.png").is_file()


def test_predictions_that_are_there_are_kept(tool: ModuleType, tested_run: Path) -> None:
    write(tested_run, "predictions.json", [])
    tool.predict(tested_run)
    assert (tested_run / "predictions.json").read_text() == "[]"
    os.utime(tested_run / "predictions.json", (1, 1))
    tool.predict(tested_run)
    assert len(json.loads((tested_run / "predictions.json").read_text())) == 3


def test_predicting_needs_a_test(
    tool: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    assert tool.main(["--predict", str(tmp_path)]) == 2
    assert "run tools/test.py first" in capsys.readouterr().err
