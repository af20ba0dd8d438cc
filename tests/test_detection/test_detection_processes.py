"""Several processes on little data: pictures without objects, and fewer pictures than processes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from detection_toy import DETECTORS, make_data, recipe, results
from tool_runs import ROOT, TEST, TRAIN, tool, tool_in_processes

pytestmark = pytest.mark.slow

NOTED = """
custom_imports = dict(imports=["detection_toy"])
custom_hooks = [dict(type="polaformer.ToyRank")]
train_dataloader = dict(sampler=dict(shuffle=False))
"""


def agreed(work_dir: Path, output: str, objects: list[list[int]]) -> None:
    """Two processes have ended with the same weights; ``objects`` of each one's pictures."""
    notes = [json.loads((work_dir / f"rank_{rank}.json").read_text()) for rank in (0, 1)]
    assert [note["distributed"] for note in notes] == [True, True]
    assert [note["search"] for note in notes] == [False, False]
    assert [note["objects"] for note in notes] == [[row, row] for row in objects]  # two epochs
    assert np.isfinite([note["losses"] for note in notes]).all()
    assert notes[0]["losses"] != notes[1]["losses"]
    assert notes[0]["weights"] == notes[1]["weights"]
    assert "4 images used, 2 without objects" in output


# Pictures 0 and 2 go to the first process, 1 and 3 to the second.
SHARES = {(1, 2): [[1, 0], [0, 1]], (0, 2): [[0, 0], [2, 1]]}


@pytest.mark.parametrize("empty", list(SHARES), ids=["one_each", "one_has_none"])
@pytest.mark.parametrize("detector", DETECTORS)
def test_background_only_on_two_processes(tmp_path, detector, empty):
    data = make_data(tmp_path / "data", [(128, 96)] * 4, empty=empty)
    path = recipe(tmp_path / "r.py", detector, data, extra=NOTED)
    words = (path, "--device", "cpu", "--work-dir", tmp_path / "run")
    output = tool_in_processes(2, tmp_path / "logs", TRAIN, *words)
    agreed(tmp_path / "run", output[0], SHARES[empty])


def test_background_only_by_torchrun(tmp_path):
    """As the README starts several processes; the tests above fork instead, to save imports."""
    data = make_data(tmp_path / "data", [(128, 96)] * 4, empty=(1, 2))
    path = recipe(tmp_path / "r.py", "mask_rcnn", data, extra=NOTED)
    torchrun = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")
    words = (*torchrun, TRAIN, path, "--device", "cpu", "--work-dir", tmp_path / "run")
    folders = os.pathsep.join(map(str, Path(__file__).parents[:2]))
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": folders}
    done = subprocess.run(
        [sys.executable, *map(str, words)],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=500,
    )
    assert done.returncode == 0, done.stderr
    agreed(tmp_path / "run", done.stdout + done.stderr, SHARES[1, 2])


def test_more_processes_than_pictures_to_validate(trained, tmp_path, capfd):
    path, folder = trained("retinanet")
    few = make_data(tmp_path / "few", [(128, 96), (70, 90)])
    few = f"test_dataloader.dataset.data_root={few}"
    words = (TEST, path, folder, "--device", "cpu", "--cfg-options", few, "--work-dir")
    assert tool(capfd, *words, tmp_path / "one").code == 0
    tool_in_processes(3, tmp_path / "logs", *words, tmp_path / "three")
    assert results(tmp_path / "one")["num_images"] == 2
    assert results(tmp_path / "three") == results(tmp_path / "one")


def test_more_processes_than_pictures_to_validate_in_training(det, tmp_path):
    val = make_data(tmp_path / "val", [(128, 96), (70, 90)])
    path = recipe(tmp_path / "r.py", "retinanet", det, val, extra="train_cfg = dict(max_epochs=1)")
    words = (path, "--device", "cpu", "--work-dir", tmp_path / "run")
    output = tool_in_processes(3, tmp_path / "logs", TRAIN, *words)
    assert "2 images used" in output[0]
    assert "bbox_mAP" in output[0]
