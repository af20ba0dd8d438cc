"""Training by iterations: what follows the loop, and a killed run that ends where another ends."""

from __future__ import annotations

import json
import multiprocessing
import signal

import pytest
import torch
from engine_toy import iterations, read_lines, run_toy, toy_config, weights_of
from mmengine.hooks import Hook
from test_engine_loop import run_processes

from polaformer.engine.hooks.health import TrainingDiverged
from polaformer.engine.hooks.interrupt import Interrupted
from polaformer.engine.runner import Runner
from polaformer.errors import UserError

BEST = {"default_hooks": {"checkpoint": {"save_best": "top1", "max_keep_ckpts": 2}}}
EVERY_4 = {"default_hooks": {"checkpoint": {"interval": 4}}}
FP16 = {"optim_wrapper.type": "AmpOptimWrapper", "optim_wrapper.dtype": "float16"}
ACCUMULATED = {"optim_wrapper.accumulative_counts": 3}
EMA = {"type": "EMAHook", "momentum": 0.1}


def traced(path, *hooks, **when):
    return {"custom_hooks": [*hooks, {"type": "ToyTrace", "path": str(path), **when}]}


def run_and_die(work_dir, **changes):
    process = multiprocessing.get_context("fork").Process(
        target=run_toy, args=(work_dir,), kwargs=changes
    )
    process.start()
    process.join(60)
    assert process.exitcode == -signal.SIGKILL


def same(first, second):
    return all(torch.equal(first[key], second[key]) for key in first)


@pytest.mark.parametrize(
    "kill_after, resumed_at, workers, changes, hooks",
    [
        (18, 18, 0, {}, []),
        (18, 18, 2, {}, []),
        (23, 18, 0, BEST, []),
        (22, 20, 2, EVERY_4, [EMA]),
        (22, 20, 0, {**EVERY_4, **ACCUMULATED}, []),
        (18, 16, 0, {**EVERY_4, **FP16}, []),
    ],
)
def test_killed_and_resumed_equals_uninterrupted(
    tmp_path, kill_after, resumed_at, workers, changes, hooks
):
    """12 samples, batch 2, 36 iterations: ids, rates, data and losses of every step, and weights.

    The cases end on a checkpoint, between two, and in the middle of an accumulation.
    """

    def config(name, workers=workers, **when):
        loader = {"train_dataloader.num_workers": workers}
        return iterations(**changes, **loader, **traced(tmp_path / name, *hooks, **when))

    straight = run_toy(tmp_path / "a", **config("a.txt", workers=0))
    run_and_die(tmp_path / "b", **config("b.txt", kill_after=kill_after))
    resumed = run_toy(tmp_path / "b", resume="auto", **config("b2.txt"))
    assert resumed.resume_source == str(tmp_path / "b" / f"iter_{resumed_at}.pth")

    lines, again = read_lines(tmp_path / "a.txt"), read_lines(tmp_path / "b2.txt")
    assert len(lines) == 36
    assert again == lines[resumed_at:]
    assert same(weights_of(straight), weights_of(resumed))
    for first, second in zip(straight.hooks, resumed.hooks, strict=True):
        if hasattr(first, "ema_model"):
            assert same(first.ema_model.state_dict(), second.ema_model.state_dict())

    def scalars(folder):
        lines = read_lines(tmp_path / folder / "scalars.json")
        return [(line["step"], line.get("val/top1"), line.get("loss")) for line in lines]

    assert scalars("a") == scalars("b")
    names = [sorted(path.name for path in (tmp_path / f).glob("*.pth")) for f in ("a", "b")]
    assert names[0] == names[1]


class At(Hook):
    """Raise a signal, or save the name of the newest file, before or after a step."""

    def __init__(self, step, number=signal.SIGTERM):
        self.step, self.number = step, number

    def before_train_iter(self, runner, batch_idx, data_batch=None):
        if runner.iter + 1 == self.step:
            signal.raise_signal(self.number)


class DieInValidation(Hook):
    def __init__(self, step):
        self.step = step

    def before_val(self, runner):
        if runner.iter == self.step:
            raise ZeroDivisionError


def run_with(hook, error, work_dir, **changes):
    runner = Runner.from_cfg(toy_config(work_dir, **changes))
    runner.register_hook(hook)
    with pytest.raises(error):
        runner.train()
    return runner


@pytest.mark.parametrize("step", [8, 12])
def test_a_run_that_was_asked_to_stop_ends_as_one_that_was_not(tmp_path, step):
    """Between checkpoints it leaves a file that goes with the next one; on one it adds nothing."""
    config = iterations(24, **traced(tmp_path / "x"))
    straight = run_toy(tmp_path / "a", **config)
    run_with(At(step), Interrupted, tmp_path / "b", **config)
    names = {path.name for path in (tmp_path / "b").glob("*.pth")}
    assert names == {"iter_6.pth", f"iter_{step}.pth"}
    resumed = run_toy(tmp_path / "b", resume="auto", **config)
    assert same(weights_of(straight), weights_of(resumed))
    names = [sorted(path.name for path in (tmp_path / f).glob("*.pth")) for f in ("a", "b")]
    assert names[0] == names[1] == ["iter_12.pth", "iter_18.pth", "iter_24.pth", "iter_6.pth"]
    rows = [
        line["step"] for line in read_lines(tmp_path / "b" / "scalars.json") if "loss" not in line
    ]
    assert rows == [6, 12, 18, 24]


def test_a_validation_that_is_owed_is_made_up_for_once(tmp_path):
    """Also where the file to continue from is that of the interruption itself."""
    config = iterations(12, val_interval=4, default_hooks={"checkpoint": {"interval": 6}})
    run_with(DieInValidation(8), ZeroDivisionError, tmp_path, **config)
    run_with(At(8), Interrupted, tmp_path, **config, resume=True)
    run_toy(tmp_path, **config, resume=True)
    rows = [line["iter"] for line in read_lines(tmp_path / "scalars.json") if "val/top1" in line]
    assert rows == [4, 8, 12]
    assert {path.name for path in tmp_path.glob("*.pth")} == {
        "iter_6.pth",
        "iter_8.pth",
        "iter_12.pth",
    }


def test_what_follows_the_loop(tmp_path, capsys):
    """Not one entry of the config says that iterations are counted, but the loop."""
    hooks = {"logger": {"interval": 4}, "checkpoint": {"save_best": "auto", "max_keep_ckpts": 1}}
    runner = run_toy(tmp_path, **iterations(14, 6, default_hooks=hooks))
    log = capsys.readouterr().out
    assert "Iter(train) [ 4/14]" in log
    assert "eta: " in log
    assert "Iter(val) [12]  top1: " in log
    assert "epoch" not in log.lower()
    lines = read_lines(tmp_path / "scalars.json")
    assert [line["step"] for line in lines] == [4, 6, 8, 12, 12, 14, 14]
    assert not any("epoch" in line for line in lines)
    names = {path.name for path in tmp_path.glob("*.pth")}
    best = runner.message_hub.get_info("best_ckpt").rsplit("/", 1)[-1]
    assert names == {"iter_14.pth", best}
    assert best.startswith("best_top1_iter_")
    card = json.loads((tmp_path / "run_card.json").read_text())
    assert card["metrics"]["iter"] == 14
    assert card["starts"][0]["end_iteration"] == 14
    meta = torch.load(tmp_path / "iter_14.pth", weights_only=True)["meta"]
    assert (meta["epoch"], meta["iter"], meta["samples_in_epoch"]) == (0, 14, 28)


def test_bad_steps_in_a_row_are_placed_among_the_iterations(tmp_path):
    """Under a progress bar, whose unit is the iteration too."""
    changes = iterations(36, default_hooks={"progress": {"enabled": True}})
    with pytest.raises(TrainingDiverged, match=r"stopped at iteration 17 \(of 36\): 10 steps"):
        run_toy(tmp_path, **changes, **{"model.poison": list(range(8, 36))})


def test_an_end_that_is_no_multiple_is_validated_and_saved(tmp_path):
    """Before ``val_begin`` nothing is validated."""
    loop = {"_delete_": True, "by_epoch": False, "max_iters": 10, "val_interval": 3, "val_begin": 6}
    run_toy(tmp_path, **{**iterations(), "train_cfg": loop})
    rows = [line["iter"] for line in read_lines(tmp_path / "scalars.json") if "val/top1" in line]
    assert rows == [6, 9, 10]
    assert (tmp_path / "iter_10.pth").exists()


def test_more_iterations_give_the_rates_of_a_run_that_long(tmp_path, capsys):
    run_toy(tmp_path / "a", **iterations(24, **traced(tmp_path / "a.txt")))
    run_toy(tmp_path / "b", **iterations(12))
    capsys.readouterr()
    run_toy(tmp_path / "b", resume=True, **iterations(24, **traced(tmp_path / "b.txt")))
    log = capsys.readouterr().out
    assert "the config's schedule is not the checkpoint's and holds from iteration 12 on" in log
    assert "train_cfg.max_iters: 12 -> 24" in log
    rates = [[line["lr"] for line in read_lines(tmp_path / f)] for f in ("a.txt", "b.txt")]
    assert rates[1] == rates[0][12:]
    run_toy(tmp_path / "b", resume=True, **iterations(24))
    log = capsys.readouterr().out
    assert "already finished: 24 of 24 iterations (raise train_cfg.max_iters to go on)" in log


def test_another_batch_size_continues_after_the_samples_that_were_seen(tmp_path, capsys):
    whole = traced(tmp_path / "a.txt")
    run_toy(tmp_path / "a", **iterations(12, **whole))
    run_toy(tmp_path / "b", **iterations(6))
    stream = {"train_dataloader.batch_size": 3, "train_dataloader.drop_last": True}
    more = {**stream, **traced(tmp_path / "b.txt")}
    for end in (8, 10):  # a second resumption counts from the first
        run_toy(tmp_path / "b", resume=True, **iterations(end, **more))
    assert "written with 2 images per step, now there are 3" in capsys.readouterr().out
    ids = [
        [index for line in read_lines(tmp_path / name) for index in line["ids"]]
        for name in ("a.txt", "b.txt")
    ]
    assert ids[1] == ids[0][12:]


def test_early_stopping_saves_where_it_stopped_and_stays_stopped(tmp_path):
    stop = {"type": "EarlyStoppingHook", "monitor": "top1", "patience": 2, "min_delta": 200.0}
    config = iterations(36, 5, custom_hooks=[stop], default_hooks={"checkpoint": {"interval": 6}})
    assert run_toy(tmp_path, **config).iter == 15
    assert sorted(path.name for path in tmp_path.glob("iter_*.pth")) == [
        "iter_12.pth",
        "iter_15.pth",
        "iter_6.pth",
    ]
    assert run_toy(tmp_path, resume=True, **config).iter == 15


def test_a_file_of_a_run_by_epochs_is_not_continued_by_iterations(tmp_path):
    run_toy(tmp_path / "a", **{"train_cfg.max_epochs": 1})
    with pytest.raises(UserError, match=r"its run counted epochs and train_cfg counts iterations"):
        run_toy(tmp_path / "a", resume=True, **iterations(12))
    run_toy(tmp_path / "b", **iterations(6))
    with pytest.raises(UserError, match=r"counted iterations and train_cfg counts epochs"):
        run_toy(tmp_path / "b", resume=True)


def test_a_sampler_by_epochs_becomes_the_stream_of_the_same_order(tmp_path):
    epochs = {"train_dataloader.sampler.type": "EpochSampler"}
    for name, changes in (("a", {}), ("b", epochs)):
        run_toy(tmp_path / name, **{**iterations(9, **traced(tmp_path / f"{name}.txt")), **changes})
    assert read_lines(tmp_path / "a.txt") == read_lines(tmp_path / "b.txt")


@pytest.mark.parametrize(
    "changes, text",
    [
        (iterations(0), "train_cfg.max_iters is 0; allowed: whole numbers from 1 up"),
        (iterations(9.5), "train_cfg.max_iters is 9.5; allowed"),
        (iterations(6, 0), "train_cfg.val_interval is 0; allowed"),
        (
            {**iterations(6), "train_dataloader.sampler.type": "DefaultSampler"},
            "cannot continue a DefaultSampler",
        ),
        (
            {"train_dataloader.sampler.type": "InfiniteSampler"},
            "train_dataloader.sampler: the stream of an InfiniteSampler has no end",
        ),
        (
            {"val_dataloader.sampler.type": "InfiniteSampler"},
            "val_dataloader.sampler: the stream of an InfiniteSampler has no end",
        ),
    ],
)
def test_impossible_loops_are_told(tmp_path, changes, text):
    with pytest.raises(UserError) as error:
        run_toy(tmp_path, **changes)
    assert text in str(error.value)


@pytest.mark.slow
def test_two_processes_equal_one_with_the_joint_batch(tmp_path):
    """Without dropout; 10 samples in batches of 4, then of 6: passes meet inside of batches."""
    common = {"model.dropout": 0.0, "train_dataloader.dataset.count": 10}
    joint = {**common, "train_dataloader.batch_size": 4}
    one = weights_of(run_toy(tmp_path / "one", **iterations(8, 4, **joint)))
    first, second = run_processes(tmp_path, "two", **iterations(8, 4, **common))
    assert same(first, second)
    for key, value in one.items():
        torch.testing.assert_close(first[key], value, rtol=1e-5, atol=1e-6)
    fixed = {**common, "param_scheduler": None}
    straight, _ = run_processes(tmp_path, "straight", **iterations(8, 4, **fixed))
    run_processes(tmp_path, "parts", **iterations(4, 4, **fixed))
    resumed, _ = run_processes(tmp_path, "parts", **iterations(8, 4, **fixed, resume=True))
    assert same(straight, resumed)
