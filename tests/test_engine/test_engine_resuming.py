"""A resumed run whose config has changed: schedules, learning rate, weight decay, warnings."""

from __future__ import annotations

import pytest
from engine_toy import read_lines, run_toy

INTERRUPTED = {"default_hooks": {"checkpoint": {"interval": 5, "by_epoch": False}}}


def warmup_cosine(epochs):
    return {
        "type": "WarmupCosineLR",
        "T_max": epochs,
        "warmup": epochs / 2,
        "convert_to_iter_based": True,
    }


def chained(epochs):
    """mmengine's: each step is a factor on the rate of the step before."""
    half = 3 * epochs
    return [
        {"type": "LinearLR", "start_factor": 0.1, "end": half, "by_epoch": False},
        {"type": "CosineAnnealingLR", "eta_min": 1e-3, "begin": half, "by_epoch": False},
        {"type": "StepLR", "step_size": epochs - 2, "by_epoch": True},
    ]


def run(folder, scheduler, epochs, **changes):
    path = folder.with_name(f"{folder.name}-{epochs}.txt")
    trace = {"custom_hooks": [{"type": "ToyTrace", "path": str(path)}]}
    schedulers = [scheduler] if isinstance(scheduler, dict) else scheduler
    cfg = {"train_cfg.max_epochs": epochs, "param_scheduler": schedulers}
    runner = run_toy(folder, **cfg, **trace, **changes)
    return runner, {line["iter"]: line["lr"] for line in read_lines(path)}


@pytest.mark.parametrize("schedule", [warmup_cosine, chained])
@pytest.mark.parametrize("stopped_at", ["epoch_3.pth", "iter_5.pth"])
def test_more_epochs_give_the_rates_of_a_run_that_long(tmp_path, capsys, schedule, stopped_at):
    """Also from inside the warm-up, where the shorter run warmed up faster."""
    hooks = INTERRUPTED if stopped_at.startswith("iter") else {}
    _, expected = run(tmp_path / "a", schedule(5), 5)
    run(tmp_path / "b", schedule(3), 3, **hooks)
    source = {"resume": True, "load_from": str(tmp_path / "b" / stopped_at)}
    capsys.readouterr()
    _, found = run(tmp_path / "c", schedule(5), 5, **source)
    start = 18 if stopped_at == "epoch_3.pth" else 5
    assert found == {step: expected[step] for step in range(start + 1, 31)}
    log = capsys.readouterr().out
    assert f"the config's schedule is not the checkpoint's and holds from iteration {start}" in log
    assert "train_cfg.max_epochs: 3 -> 5" in log


@pytest.mark.parametrize("kind", ["ReduceOnPlateauLR", "CosineAnnealingLR"])
def test_an_unchanged_config_is_no_news(tmp_path, capsys, kind):
    more = {"monitor": "loss"} if kind == "ReduceOnPlateauLR" else {"T_max": 3}
    run(tmp_path, {"type": kind, **more}, 3, **INTERRUPTED)
    source = {"resume": True, "load_from": str(tmp_path / "iter_15.pth")}
    capsys.readouterr()
    run(tmp_path, {"type": kind, **more}, 3, **source, **INTERRUPTED)
    log = capsys.readouterr().out
    assert "iteration 15" in log
    assert "differ" not in log
    assert "schedule" not in log


def test_a_schedule_that_reads_validations_stays_and_says_so(tmp_path, capsys):
    plateau = {"type": "ReduceOnPlateauLR", "monitor": "loss", "patience": 9, "factor": 0.5}
    run(tmp_path / "a", plateau, 1)
    changed = {**plateau, "factor": 0.25}
    run(tmp_path / "a", changed, 2, resume=True)
    assert "ReduceOnPlateauLR depends on earlier validations" in capsys.readouterr().out


@pytest.mark.parametrize("scheduler", [None, warmup_cosine(4)])
def test_the_rate_and_decay_of_the_config_win(tmp_path, capsys, scheduler):
    new = {"optim_wrapper.optimizer.lr": 0.025, "optim_wrapper.optimizer.weight_decay": 0.01}
    _, before = run(tmp_path / "a", scheduler, 4)
    run(tmp_path / "b", scheduler, 2)
    capsys.readouterr()
    runner, found = run(tmp_path / "b", scheduler, 4, resume=True, **new)
    assert found == {step: pytest.approx(before[step] / 2) for step in range(13, 25)}
    assert runner.optim_wrapper.param_groups[0]["weight_decay"] == 0.01
    log = capsys.readouterr().out
    assert "optim_wrapper.optimizer.lr: 0.05 -> 0.025" in log
    assert "weight_decay: 0 -> 0.01" in log
    assert ("lr: 0.05 -> 0.025; weight_decay" if scheduler is None else "base lr 0.05 -> 0") in log


def test_what_differs_is_listed(tmp_path, capsys):
    run(tmp_path / "a", None, 1)
    capsys.readouterr()
    changes = {"train_dataloader.dataset.count": 10, "model.dropout": 0.0}
    run(tmp_path / "a", None, 2, resume=True, **changes)
    log = capsys.readouterr().out
    assert "the config differs from the checkpoint's: " in log
    assert "model.dropout: absent -> 0.0" in log
    assert "fingerprint: toy-12 -> toy-10; samples: 12 -> 10" in log


def test_more_epochs_under_the_same_schedule_are_no_news(tmp_path, capsys):
    _, straight = run(tmp_path / "a", warmup_cosine(4), 4)
    run(tmp_path / "b", warmup_cosine(4), 3)
    capsys.readouterr()
    _, resumed = run(tmp_path / "b", warmup_cosine(4), 4, resume=True)
    assert resumed == {step: pytest.approx(straight[step]) for step in range(19, 25)}
    assert "schedule is not the checkpoint's" not in capsys.readouterr().out
