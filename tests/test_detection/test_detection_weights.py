"""A classifier's checkpoint as the backbone of a detector: the log says what was loaded."""

from __future__ import annotations

import re

import pytest
import torch
from detection_toy import ARCHS, recipe
from tool_runs import TRAIN, log_of, tool, weights

from polaformer.registry import MODELS

STILL = """
auto_scale_lr = dict(enable=False)
optim_wrapper = dict(optimizer=dict(lr=1e-30, weight_decay=0.0))
train_cfg = dict(max_epochs=1)
val_dataloader = val_cfg = val_evaluator = None
"""
"""One epoch after which the weights are those of the start."""


def classifier(backbone: str) -> dict[str, torch.Tensor]:
    torch.manual_seed(5)
    model = MODELS.build(
        dict(
            type="polaformer.ImageClassifier",
            backbone=dict(type=backbone, arch=ARCHS[backbone], img_size=64),
            head=dict(type="polaformer.LinearHead", num_classes=1000),
        )
    )
    return dict(model.state_dict())


def save(path, state: dict[str, torch.Tensor], prefix: str) -> None:
    torch.save({"model": {prefix + name: value for name, value in state.items()}}, path)


def start_from(path) -> str:
    init = f"dict(type='Pretrained', checkpoint='{path}')"
    return f"{STILL}\nmodel = dict(backbone=dict(init_cfg={init}))"


@pytest.mark.parametrize("backbone", sorted(ARCHS))
def test_every_backbone_tensor_enters_and_the_head_is_ignored(det, tmp_path, capfd, backbone):
    state = classifier(backbone)
    file = tmp_path / "classifier.pth"
    save(file, state, "module.")
    path = recipe(tmp_path / "r.py", "retinanet", det, backbone=backbone, extra=start_from(file))
    work_dir = tmp_path / "run"
    ended = tool(capfd, TRAIN, path, "--device", "cpu", "--work-dir", work_dir)
    assert ended.code == 0, ended.err
    (line,) = [line for line in log_of(work_dir).splitlines() if f"{file}: " in line]
    trunk = [name for name in state if name.startswith("backbone.")]
    found = re.search(r": (\d+) of (\d+) loaded \(backbone tensors\), (\d+) resized", line)
    assert found, line
    loaded, total, resized = map(int, found.groups())
    assert loaded == total == len(trunk)
    assert "ignored: module.head.fc.bias module.head.fc.weight," in line

    after = {k: v for k, v in weights(work_dir / "epoch_1.pth").items() if k in trunk}
    same = [name for name in trunk if after[name].shape == state[name].shape]
    assert len(trunk) - len(same) == resized
    assert resized > 0  # the classifier saw 64 pixels, this backbone is made for 128
    for name in same:
        torch.testing.assert_close(after[name], state[name], rtol=0, atol=1e-20)
    for name in set(trunk) - set(same):
        assert after[name].mean() == pytest.approx(state[name].mean().item(), abs=2e-3)


def test_other_names_stop_the_command_with_an_example_of_each_side(det, tmp_path, capfd):
    state = classifier("polaformer.PolaPVT")
    file = tmp_path / "classifier.pth"
    save(file, state, "foo.")
    path = recipe(tmp_path / "r.py", "retinanet", det, extra=start_from(file))
    work_dir = tmp_path / "run"
    ended = tool(capfd, TRAIN, path, "--device", "cpu", "--work-dir", work_dir)
    assert ended.code == 2
    assert "0 of " in ended.err
    theirs = re.search(r"the file has '(foo\.[^']+)'", ended.err)
    ours = re.search(r"the model wants '([^']+)'", ended.err)
    assert theirs, ended.err
    assert theirs[1].removeprefix("foo.") in state
    assert ours, ended.err
    assert f"backbone.{ours[1]}" in state
    assert "Traceback" not in ended.err
    assert "Epoch(train)" not in log_of(work_dir)
    assert not list(work_dir.glob("*.pth"))
