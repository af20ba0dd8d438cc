"""The same numbers however a detector is tested, validated or continued."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch
from detection_toy import SIZE, recipe, results
from tool_runs import TEST, TRAIN, log_of, scalars, tool, tool_in_processes, weights


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


def validated(folder: Path) -> dict[str, float]:
    """Metrics of the only validation of a run."""
    (last,) = [line for line in scalars(folder) if "val/bbox_mAP" in line]
    return {k.removeprefix("val/"): v for k, v in last.items() if k.startswith("val/")}


@pytest.mark.parametrize("detector", ["retinanet", "mask_rcnn"])
def test_a_test_repeats_the_validation_and_itself(trained, tmp_path, capfd, detector):
    path, folder = trained(detector)
    expected = validated(folder)
    runs = []
    for name in ("a", "b"):
        words = (path, folder, "--device", "cpu", "--work-dir", tmp_path / name)
        assert tool(capfd, TEST, *words).code == 0
        runs.append(results(tmp_path / name))
    assert runs[0] == runs[1]
    assert runs[0]["metrics"] == pytest.approx(expected, rel=0, abs=1e-12)
    # A model that finds nothing would prove nothing.
    least = {"retinanet": {"bbox": 0.05}, "mask_rcnn": {"bbox": 1e-3, "segm": 1e-3}}[detector]
    assert all(value < expected[f"{kind}_mAP"] < 1 for kind, value in least.items())
    assert set(runs[0]["per_class"]) == {"cat", "dog", "Bird"}


AVERAGED = """
auto_scale_lr = dict(enable=False)
custom_hooks = [dict(type="EMAHook", ema_type="ExponentialMovingAverage", momentum=0.2)]
optim_wrapper = dict(optimizer=dict(lr=2e-3))
train_cfg = dict(max_epochs=6, val_interval=6)
"""


def test_a_test_repeats_the_validation_in_a_half_type_of_averaged_weights(
    det, val, tmp_path, capfd
):
    path = recipe(tmp_path / "r.py", "retinanet", det, val, extra=AVERAGED)
    run, words = tmp_path / "run", (path, "--device", "cpu", "--work-dir")
    assert tool(capfd, TRAIN, *words, run, "--amp", "bf16").code == 0
    expected = validated(run)
    assert 0.01 < expected["bbox_mAP"] < 1
    words = (path, run, "--device", "cpu", "--work-dir")
    assert tool(capfd, TEST, *words, tmp_path / "half").code == 0
    assert results(tmp_path / "half")["metrics"] == pytest.approx(expected, rel=0, abs=1e-12)
    full = (tmp_path / "full", "--cfg-options", "test_cfg.amp=None")
    assert tool(capfd, TEST, *words, *full).code == 0
    assert results(tmp_path / "full")["metrics"] != results(tmp_path / "half")["metrics"]


@pytest.mark.slow
def test_one_process_repeats_the_validation_of_two_with_batch_norm(det, val, tmp_path, capfd):
    """Each process has seen other images, so their running statistics differ until they share."""
    extra = AVERAGED + "model = dict(neck=dict(norm_cfg=dict(type='BN')))\n"
    extra += "train_dataloader = dict(batch_size=3)\n"
    path = recipe(tmp_path / "r.py", "retinanet", det, val, extra=extra)
    words = (path, "--device", "cpu", "--work-dir", tmp_path / "run")
    tool_in_processes(2, tmp_path / "logs", TRAIN, *words)
    expected = validated(tmp_path / "run")
    assert 1e-3 < expected["bbox_mAP"] < 1
    words = (path, tmp_path / "run", "--device", "cpu", "--work-dir", tmp_path / "test")
    assert tool(capfd, TEST, *words).code == 0
    assert results(tmp_path / "test")["metrics"] == pytest.approx(expected, rel=0, abs=1e-12)


def views(scales: Sequence[tuple[int, int]], flips: Sequence[float]) -> str:
    """A child's ``tta_pipeline``."""
    steps = [
        [{"type": "Resize", "scale": scale, "keep_ratio": True} for scale in scales],
        [{"type": "RandomFlip", "prob": prob} for prob in flips],
        [{"type": "PackDetInputs"}],
    ]
    several = {"type": "TestTimeAug", "transforms": steps}
    return f"tta_pipeline = {[{'type': 'polaformer.LoadImage'}, several]}\n"


@pytest.mark.parametrize("detector", ["retinanet", "mask_rcnn"])
def test_one_upright_view_is_the_plain_test(trained, det, val, tmp_path, capfd, detector):
    _, folder = trained(detector)
    path = recipe(tmp_path / "r.py", detector, det, val, extra=views([SIZE], [0.0]))
    words = (TEST, path, folder, "--device", "cpu", "--work-dir")
    for name, more in (("plain", ()), ("view", ("--tta",))):
        assert tool(capfd, *words, tmp_path / name, *more).code == 0
    plain, view = results(tmp_path / "plain"), results(tmp_path / "view")
    assert view.pop("tta") is True
    assert view["metrics"] == pytest.approx(plain["metrics"], rel=0, abs=1e-12)
    assert view["predictions.bbox.json"] == plain["predictions.bbox.json"]
    assert len(plain["predictions.bbox.json"]) > 7


def test_a_mirrored_view_of_a_cascade_is_merged_with_its_masks(trained, det, val, tmp_path, capfd):
    _, folder = trained("cascade_mask_rcnn")
    path = recipe(tmp_path / "r.py", "cascade_mask_rcnn", det, val, extra=views([SIZE], [1.0]))
    words = (TEST, path, folder, "--device", "cpu", "--work-dir", tmp_path / "t", "--tta")
    ended = tool(capfd, *words)
    assert ended.code == 0, ended.err
    found = results(tmp_path / "t")
    assert len(found["predictions.segm.json"]) == len(found["predictions.bbox.json"]) > 7


def test_the_same_classes_in_another_order_are_refused(trained, det, val, tmp_path, capfd):
    path, folder = trained("retinanet")
    words = (TEST, path, folder, "--device", "cpu", "--work-dir", tmp_path / "t")
    ended = tool(capfd, *words, "--cfg-options", "classes=('dog','cat','Bird')")
    assert ended.code == 2
    assert (
        "trained on other classes: 3 (cat, dog, Bird) there, 3 (dog, cat, Bird) here" in ended.err
    )


@pytest.mark.slow
def test_several_views_and_any_number_of_processes(trained, det, val, tmp_path, capfd):
    _, folder = trained("retinanet")
    extra = views([SIZE, (192, 128)], [0.0, 1.0])
    path = recipe(tmp_path / "r.py", "retinanet", det, val, extra=extra)
    words = (TEST, path, folder, "--device", "cpu", "--tta", "--work-dir")
    assert tool(capfd, *words, tmp_path / "one").code == 0
    tool_in_processes(2, tmp_path / "logs", *words, tmp_path / "two")
    found = results(tmp_path / "one")
    assert results(tmp_path / "two") == found
    assert 0.05 < found["metrics"]["bbox_mAP"] < 1
    assert found["metrics"] != validated(folder)


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
