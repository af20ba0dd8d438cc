"""The same numbers however a detector is tested, validated or continued."""

from __future__ import annotations

import shutil

import pytest
import torch
from detection_toy import (
    TEST,
    TRAIN,
    log_of,
    recipe,
    results,
    scalars,
    tool,
    tool_in_processes,
    weights,
)


@pytest.mark.slow
@pytest.mark.parametrize("detector", ["retinanet", "mask_rcnn"])
def test_any_number_of_processes_gives_the_same_results(trained, tmp_path, capfd, detector):
    path, folder = trained(detector)
    found = []
    for count in (1, 2, 3):
        words = (TEST, path, folder, "--device", "cpu", "--work-dir", tmp_path / str(count))
        if count == 1:
            assert tool(capfd, *words).code == 0
        else:
            tool_in_processes(count, tmp_path / f"logs_{count}", *words)
        found.append(results(tmp_path / str(count)))
    assert found[0]["num_images"] == 7
    assert len(found[0]["predictions.bbox.json"]) > 7
    assert ("predictions.segm.json" in found[0]) is (detector == "mask_rcnn")
    assert found[1] == found[0]
    assert found[2] == found[0]


def test_a_test_repeats_the_validation_and_itself(trained, tmp_path, capfd):
    path, folder = trained("retinanet")
    (last,) = [line for line in scalars(folder) if "val/bbox_mAP" in line]
    validated = {k.removeprefix("val/"): v for k, v in last.items() if k.startswith("val/")}
    runs = []
    for name in ("a", "b"):
        words = (path, folder / "epoch_12.pth", "--device", "cpu", "--work-dir", tmp_path / name)
        assert tool(capfd, TEST, *words).code == 0
        runs.append(results(tmp_path / name))
    assert runs[0] == runs[1]
    assert runs[0]["metrics"] == pytest.approx(validated, rel=0, abs=1e-12)
    assert 0.05 < validated["bbox_mAP"] < 1  # a model that finds nothing would prove nothing
    assert set(runs[0]["per_class"]) == {"cat", "dog", "Bird"}


@pytest.mark.slow
@pytest.mark.parametrize(
    "detector, stop",
    [("retinanet", 3), ("retinanet", 4), ("mask_rcnn", 5), ("cascade_mask_rcnn", 2)],
)
def test_stopped_and_resumed_equals_straight(det, tmp_path, capfd, detector, stop):
    """Three steps an epoch, two epochs; flips, drop path and sampled proposals are random."""
    random = "model = dict(backbone=dict(drop_path_rate=0.3))\nval_dataloader = None\n"
    random += "val_cfg = val_evaluator = None\n"
    straight = recipe(tmp_path / "straight.py", detector, det, extra=random)
    hook = f"[dict(type='polaformer.ToyStop', step={stop})]"
    hook = f"custom_imports = dict(imports=['detection_toy'])\ncustom_hooks = {hook}\n"
    stopped = recipe(tmp_path / "stopped.py", detector, det, extra=random + hook)
    a, b = tmp_path / "a", tmp_path / "b"
    assert tool(capfd, TRAIN, straight, "--device", "cpu", "--work-dir", a).code == 0
    ended = tool(capfd, TRAIN, stopped, "--device", "cpu", "--work-dir", b)
    assert ended.code == 130
    assert f"stopped after iteration {stop}" in ended.err
    ended = tool(capfd, TRAIN, straight, "--device", "cpu", "--work-dir", b, "--resume")
    assert ended.code == 0, ended.err
    assert f"iteration {stop}" in log_of(b)
    steps = [
        [(line["step"], line["loss"]) for line in scalars(x) if "loss" in line] for x in (a, b)
    ]
    assert len(steps[0]) == 6
    assert steps[0] == steps[1]
    first, second = (weights(folder / "epoch_2.pth") for folder in (a, b))
    assert first.keys() == second.keys()
    assert all(torch.equal(first[key], second[key]) for key in first)


@pytest.mark.slow
def test_resumed_after_a_whole_epoch_equals_straight(det, tmp_path, capfd):
    """The first epoch as a run of its own, with its validation."""
    path = recipe(tmp_path / "recipe.py", "retinanet", det)
    a, b = tmp_path / "a", tmp_path / "b"
    assert tool(capfd, TRAIN, path, "--device", "cpu", "--work-dir", a).code == 0
    words = (path, "--device", "cpu", "--work-dir", b)
    assert tool(capfd, TRAIN, *words, "--cfg-options", "train_cfg.max_epochs=1").code == 0
    shutil.copytree(b, tmp_path / "copy")
    assert tool(capfd, TRAIN, *words, "--resume").code == 0
    first, second = (weights(folder / "epoch_2.pth") for folder in (a, b))
    assert all(torch.equal(first[key], second[key]) for key in first)
    before = weights(tmp_path / "copy" / "epoch_1.pth")
    assert not all(torch.equal(first[key], before[key]) for key in first)
    values = [
        [{k: v for k, v in line.items() if k.startswith("val/")} for line in scalars(folder)]
        for folder in (a, b)
    ]
    assert values[0] == values[1]
