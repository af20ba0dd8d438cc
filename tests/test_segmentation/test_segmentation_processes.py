"""Two processes train a segmentor: every parameter is used, and both end with the same weights."""

from __future__ import annotations

import json

import numpy as np
import pytest
from segmentation_toy import RECIPES, recipe, validated
from tool_runs import TRAIN, tool_in_processes

NOTED = """
custom_imports = dict(imports=["segmentation_toy"])
custom_hooks = [dict(type="polaformer.ToyState")]
train_cfg = dict(max_iters=2, val_interval=2)
"""


@pytest.mark.slow
@pytest.mark.parametrize("head", sorted(RECIPES))
def test_two_processes_agree_without_a_search_for_unused_parameters(scenes, val, tmp_path, head):
    path = recipe(tmp_path / "r.py", head, scenes, val, extra=NOTED)
    words = (path, "--device", "cpu", "--work-dir", tmp_path / "run")
    output = tool_in_processes(2, tmp_path / "logs", TRAIN, *words)
    notes = [json.loads((tmp_path / "run" / f"rank_{rank}.json").read_text()) for rank in (0, 1)]
    assert [note["distributed"] for note in notes] == [True, True]
    assert [note["search"] for note in notes] == [False, False]
    assert np.isfinite([note["losses"] for note in notes]).all()
    assert notes[0]["losses"] != notes[1]["losses"]
    assert notes[0]["weights"] == notes[1]["weights"]
    assert "7 images" in output[0]
    assert 0 <= validated(tmp_path / "run")["mIoU"] <= 100
