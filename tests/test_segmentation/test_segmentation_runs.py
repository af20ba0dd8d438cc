"""A shipped recipe that is killed at an iteration and continued ends where another one ends."""

from __future__ import annotations

import pytest
import torch
from segmentation_toy import recipe
from tool_runs import TRAIN, killed, log_of, scalars, tool, weights

KILL = """
custom_imports = dict(imports=["segmentation_toy"])
custom_hooks = [dict(type="polaformer.ToyKill", step={step})]
"""
WORKERS = "train_dataloader = dict(num_workers=2, persistent_workers=True)\n"


@pytest.mark.slow
@pytest.mark.parametrize("head, step, more", [("semantic_fpn", 5, WORKERS), ("upernet", 3, "")])
def test_killed_and_resumed_equals_straight(scenes, val, tmp_path, capfd, head, step, more):
    """Checkpoints and validations at 3 and 6; between them, or before the validation of 3.

    Size, place, colours and drop path are random; three images a step of the six.
    """
    random = "model = dict(backbone=dict(drop_path_rate=0.3))\n"
    straight = recipe(tmp_path / "straight.py", head, scenes, val, batch_size=3, extra=random)
    extra = random + more + KILL.format(step=step)
    stopped = recipe(tmp_path / "stopped.py", head, scenes, val, batch_size=3, extra=extra)
    a, b = tmp_path / "a", tmp_path / "b"
    ended = tool(capfd, TRAIN, straight, "--device", "cpu", "--work-dir", a)
    assert ended.code == 0, ended.err
    killed(tmp_path / "killed.txt", TRAIN, stopped, "--device", "cpu", "--work-dir", b)
    assert {path.name for path in b.glob("iter_*.pth")} == {"iter_3.pth"}
    ended = tool(capfd, TRAIN, straight, "--device", "cpu", "--work-dir", b, "--resume")
    assert ended.code == 0, ended.err
    assert "iter_3.pth: iteration 3" in log_of(b)
    rows = [
        [
            (line["step"], line["loss"])
            if "loss" in line
            else {key: value for key, value in line.items() if key.startswith("val/")}
            for line in scalars(folder)
        ]
        for folder in (a, b)
    ]
    assert len(rows[0]) == 8
    assert rows[0] == rows[1]
    first, second = (weights(folder / "iter_6.pth") for folder in (a, b))
    assert first.keys() == second.keys()
    assert all(torch.equal(first[key], second[key]) for key in first)
    names = [sorted(path.name for path in folder.glob("*.pth")) for folder in (a, b)]
    assert names[0] == names[1]
    assert sum(name.startswith("best_mIoU_iter_") for name in names[0]) == 1
