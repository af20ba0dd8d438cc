"""Runs whose weights give results that are not finite: what is kept, and how they end."""

from __future__ import annotations

import math

import pytest
import torch
from engine_toy import run_toy, toy_config, weights_of
from mmengine.hooks import Hook

from polaformer.engine.hooks import HealthHook, TrainingDiverged
from polaformer.engine.runner import Runner

KEEP = {"default_hooks": {"checkpoint": {"save_best": "top1", "max_keep_ckpts": 1}}}
PATIENT = {"default_hooks.health": {"max_bad_steps": 100}}


def names(folder, pattern="*.pth"):
    return sorted(path.name for path in folder.glob(pattern))


def health_of(runner):
    return next(hook for hook in runner.hooks if isinstance(hook, HealthHook))


def test_a_streak_pushes_no_good_checkpoint_out_and_ends_as_an_error(tmp_path, capsys):
    """Steps 9 to 36 are bad: epoch 1 is the last that ended well."""
    changes = {**KEEP, **PATIENT, "model.poison": range(9, 40)}
    with pytest.raises(TrainingDiverged) as caught:
        run_toy(tmp_path, **changes)
    assert names(tmp_path, "epoch*") == ["epoch_1.pth"]
    assert names(tmp_path, "best*") == ["best_top1_epoch_1.pth"]
    message = str(caught.value)
    assert "stopped at iteration 36 (the end): 28 steps in a row" in message
    assert f"Last good checkpoint: {tmp_path / 'epoch_1.pth'}." in message
    assert "no checkpoint at iteration" in capsys.readouterr().out


def test_weights_that_explode_are_never_best(tmp_path, capsys):
    """One step of 1e30 is finite; everything that such weights give is not."""
    lr = {"optim_wrapper.optimizer.lr": 1e30, "param_scheduler": None}
    data = {"train_dataloader.dataset.count": 2, "train_cfg.max_epochs": 3}
    accuracy = {"val_evaluator": {"type": "Accuracy", "topk": [1]}}
    with pytest.raises(TrainingDiverged) as caught:
        run_toy(tmp_path, **KEEP, **lr, **data, **accuracy)
    assert names(tmp_path, "best*") == []
    assert "Last good checkpoint: none yet" in str(caught.value)
    log = capsys.readouterr().out
    assert "no best checkpoint: loss, scores (9 samples) is not finite in this validation" in log
    assert "epoch_1.pth holds the weights that gave it" in log


def test_the_count_survives_a_resume(tmp_path):
    class Save(Hook):
        priority = "LOWEST"

        def after_train_iter(self, runner, batch_idx, data_batch=None, outputs=None):
            if runner.iter == 8:
                runner.save_checkpoint(runner.work_dir, "iter_9.pth", by_epoch=False)
                raise InterruptedError

    runner = Runner.from_cfg(toy_config(tmp_path, **{"model.poison": range(8, 10)}))
    runner.register_hook(Save())
    with pytest.raises(InterruptedError):
        runner.train()
    assert health_of(runner).bad_steps == 2
    hooks = {"default_hooks": {"health": {"max_bad_steps": 3}}}
    source = {"resume": True, "load_from": str(tmp_path / "iter_9.pth")}
    with pytest.raises(TrainingDiverged, match=r"iteration 10 \(epoch 2\): 3 steps in a row"):
        run_toy(tmp_path, **hooks, **source, **{"model.poison": [1]})


def test_a_step_that_only_accumulates_ends_no_streak(tmp_path):
    """Every third step updates, and each of these has a gradient that is not finite."""

    class Spoil(Hook):
        priority = "LOWEST"

        def before_train(self, runner):
            self.handle = runner.model.head.bias.register_hook(lambda grad: grad * math.nan)

        def after_train(self, runner):
            self.handle.remove()

    changes = {"optim_wrapper.accumulative_counts": 3, "train_cfg.max_epochs": 2}
    runner = Runner.from_cfg(toy_config(tmp_path, **changes))
    runner.register_hook(Spoil())
    with pytest.raises(TrainingDiverged, match="4 steps in a row"):
        runner.train()
    assert names(tmp_path) == []
    assert all(torch.isfinite(value).all() for value in weights_of(runner).values())
