"""A run that was killed and resumed ends where the uninterrupted one ends, bit for bit."""

from __future__ import annotations

import multiprocessing
import shutil
import signal

import pytest
import torch
from engine_toy import read_lines, run_toy, toy_config, weights_of
from mmengine.hooks import Hook

from polaformer.checkpoint.errors import CheckpointError
from polaformer.engine.hooks.interrupt import Interrupted
from polaformer.engine.runner import Runner
from polaformer.errors import UserError

EPOCH = {"default_hooks": {"checkpoint": {"interval": 1, "save_best": "top1"}}}
MID_EPOCH = {"default_hooks": {"checkpoint": {"interval": 4, "by_epoch": False}}}


FP16 = {"optim_wrapper.type": "AmpOptimWrapper", "optim_wrapper.dtype": "float16"}
ACCUMULATED = {"optim_wrapper.accumulative_counts": 3}


def traced(path, **when):
    return {"custom_hooks": [{"type": "ToyTrace", "path": str(path), **when}]}


def run_and_die(work_dir, **changes):
    process = multiprocessing.get_context("fork").Process(
        target=run_toy, args=(work_dir,), kwargs=changes
    )
    process.start()
    process.join(60)
    assert process.exitcode == -signal.SIGKILL


@pytest.mark.parametrize(
    "hooks, kill_after, workers, extra",
    [
        (EPOCH, 19, 0, {}),
        (EPOCH, 21, 2, {}),
        (MID_EPOCH, 18, 0, {}),
        (MID_EPOCH, 22, 2, {"ema": True}),
        (MID_EPOCH, 22, 0, ACCUMULATED),
        (MID_EPOCH, 18, 0, FP16),
    ],
)
def test_killed_and_resumed_equals_uninterrupted(tmp_path, hooks, kill_after, workers, extra):
    extra = dict(extra)
    ema = extra.pop("ema", False)
    changes = {**hooks, "train_dataloader.num_workers": workers, **extra}

    def with_trace(name, kill=None):
        trace = traced(tmp_path / name, kill_after=kill)
        if ema:
            trace["custom_hooks"].insert(0, {"type": "EMAHook", "momentum": 0.1})
        return {**changes, **trace}

    straight = run_toy(tmp_path / "a", **{**with_trace("a.txt"), "train_dataloader.num_workers": 0})
    run_and_die(tmp_path / "b", **with_trace("b.txt", kill_after))
    seen = len(read_lines(tmp_path / "b.txt"))
    assert seen == kill_after
    resumed = run_toy(tmp_path / "b", resume=True, **with_trace("b2.txt"))

    lines, again = read_lines(tmp_path / "a.txt"), read_lines(tmp_path / "b2.txt")
    assert len(lines) == 36
    assert again == lines[36 - len(again) :]
    assert len(again) == 36 - resumed_at(hooks, kill_after)
    expected, found = weights_of(straight), weights_of(resumed)
    assert all(torch.equal(expected[key], found[key]) for key in expected)
    if ema:
        first, second = (hook_of(r, "EMAHook").ema_model.state_dict() for r in (straight, resumed))
        assert all(torch.equal(first[key], second[key]) for key in first)


def resumed_at(hooks, kill_after):
    step = 6 if hooks is EPOCH else 4
    return kill_after // step * step


def hook_of(runner, name):
    return next(hook for hook in runner.hooks if type(hook).__name__ == name)


def test_validation_that_was_due_is_made_up_for(tmp_path):
    """Killed between the checkpoint of an epoch and its validation; nothing is missing after."""
    hooks = {**EPOCH, "train_cfg.max_epochs": 4}
    straight = run_toy(tmp_path / "a", **hooks)
    run_and_die(tmp_path / "b", **hooks, **traced(tmp_path / "x", kill_after_epoch=3))
    resumed = run_toy(tmp_path / "b", resume=True, **hooks)

    def steps(folder):
        lines = read_lines(tmp_path / folder / "scalars.json")
        return [(line["step"], line.get("val/top1"), line.get("loss")) for line in lines]

    assert steps("a") == steps("b")
    scores = [runner.message_hub.get_info("best_score") for runner in (straight, resumed)]
    assert scores[0] == scores[1]
    best = [sorted(p.name for p in (tmp_path / f).glob("best_*")) for f in ("a", "b")]
    assert best[0] == best[1]
    assert len(best[0]) == 1


def test_a_broken_newest_checkpoint_is_named_and_passed_over(tmp_path, capsys):
    run_toy(tmp_path, **{"train_cfg.max_epochs": 3})
    newest = tmp_path / "epoch_3.pth"
    newest.write_bytes(newest.read_bytes()[: newest.stat().st_size // 2])
    runner = run_toy(tmp_path, resume=True, **{"train_cfg.max_epochs": 5})
    log = capsys.readouterr().out
    assert "epoch_3.pth" in log
    assert "epoch_2.pth: epoch 2, iteration 12" in log
    assert runner.epoch == 5
    assert (tmp_path / "epoch_5.pth").exists()


def test_only_broken_checkpoints_stop_the_run(tmp_path):
    run_toy(tmp_path, **{"train_cfg.max_epochs": 2})
    for path in tmp_path.glob("epoch_*.pth"):
        path.write_bytes(b"half a file")
    with pytest.raises(UserError, match="all 2 checkpoints"):
        run_toy(tmp_path, resume=True)


def test_nothing_to_resume_starts_from_zero_and_says_so(tmp_path, capsys):
    runner = run_toy(tmp_path, resume=True, **{"train_cfg.max_epochs": 1})
    assert "starting from zero" in capsys.readouterr().out
    assert runner.iter == 6


def test_another_model_other_classes_and_bare_weights_are_refused(tmp_path):
    runner = run_toy(tmp_path / "a", **{"train_cfg.max_epochs": 1})
    path = str(tmp_path / "a" / "epoch_1.pth")
    resume = {"resume": True, "load_from": path}
    with pytest.raises(
        CheckpointError, match=r"another model: backbone.fc.weight is \(8, 4\)"
    ) as told:
        run_toy(tmp_path / "b", **resume, **{"model.width": 16})
    start = f"leave --resume out and set load_from=dict(checkpoint='{path}', allow_shape_mismatch=["
    assert start in str(told.value)
    with pytest.raises(CheckpointError, match=r"other classes: 3 \(a, b, c\) there, 3 \(a, b, d\)"):
        run_toy(tmp_path / "c", **resume, **{"train_dataloader.dataset.classes": ["a", "b", "d"]})
    with pytest.raises(CheckpointError, match="optimiser of this config is another"):
        run_toy(tmp_path / "d", **resume, **{"optim_wrapper.paramwise_cfg": {"bias_lr_mult": 2.0}})
    torch.save({"state_dict": runner.model.state_dict()}, tmp_path / "bare.pth")
    with pytest.raises(UserError, match="holds no meta, optimizer"):
        run_toy(tmp_path / "e", resume=True, load_from=str(tmp_path / "bare.pth"))


def test_a_checkpoint_is_plain_and_complete(tmp_path):
    run_toy(tmp_path, **EPOCH, **{"train_cfg.max_epochs": 2})
    content = torch.load(tmp_path / "epoch_2.pth", weights_only=True)
    needed = {"meta", "state_dict", "message_hub", "optimizer", "param_schedulers", "random_state"}
    assert needed <= set(content)
    meta = content["meta"]
    assert (meta["epoch"], meta["iter"], meta["seed"], meta["samples_in_epoch"]) == (2, 12, 0, 0)
    assert meta["dataset_meta"] == {"classes": ("a", "b", "c")}
    assert meta["versions"]["torch"] == torch.__version__.split("+")[0]
    assert "ToyClassifier" in meta["cfg"]
    assert len(meta["config_hash"]) == 12
    best = torch.load(next(tmp_path.glob("best_top1_epoch_*.pth")), weights_only=True)
    assert "optimizer" not in best


def test_the_seed_of_the_run_is_kept_when_it_was_drawn(tmp_path):
    first = run_toy(tmp_path, **{"randomness.seed": None, "train_cfg.max_epochs": 1})
    second = run_toy(tmp_path, resume=True, **{"randomness.seed": None, "train_cfg.max_epochs": 2})
    assert second.seed == first.seed
    assert second.train_dataloader.sampler.seed == first.seed


@pytest.mark.parametrize("copied", [True, False])
def test_a_run_elsewhere_leaves_the_folder_it_came_from_alone(tmp_path, copied):
    """A copied folder, or a new one with ``--resume FILE``, has files of its own to replace."""
    best = {"default_hooks": {"checkpoint": {"save_best": "loss", "max_keep_ckpts": 1}}}
    run_toy(tmp_path / "a", **best, **{"train_cfg.max_epochs": 1})
    before = sorted(path.name for path in (tmp_path / "a").iterdir())
    source = {"resume": True}
    if copied:
        shutil.copytree(tmp_path / "a", tmp_path / "b")
    else:
        source["load_from"] = str(tmp_path / "a" / "epoch_1.pth")
    run_toy(tmp_path / "b", **best, **source, **{"train_cfg.max_epochs": 3})
    assert sorted(path.name for path in (tmp_path / "a").iterdir()) == before
    assert "best_loss_epoch_1.pth" in before
    names = sorted(path.name for path in (tmp_path / "b").glob("*.pth"))
    assert names == ["best_loss_epoch_3.pth", "epoch_3.pth"]


def test_a_new_run_is_not_mixed_with_the_one_before(tmp_path, capsys):
    """Started anew in a used folder, killed in the first epoch and requeued with ``--resume``."""
    run_toy(tmp_path, **EPOCH, **{"train_cfg.max_epochs": 3})
    run_and_die(tmp_path, **EPOCH, **traced(tmp_path / "x", kill_after=2))
    assert list(tmp_path.glob("*.pth")) == []
    capsys.readouterr()
    run_toy(tmp_path, resume="auto", **EPOCH, **{"train_cfg.max_epochs": 1})
    log = capsys.readouterr().out
    assert "starting from zero" in log
    (former,) = tmp_path.glob("previous_*")
    assert {"epoch_1.pth", "epoch_3.pth", "last_checkpoint", "scalars.json"} <= {
        path.name for path in former.iterdir()
    }
    assert len(list(former.glob("best_*.pth"))) == 1
    assert (tmp_path / "epoch_1.pth").exists()
    run_toy(tmp_path, **EPOCH, **{"train_cfg.max_epochs": 1})
    assert "its checkpoints and scalars are now in" in capsys.readouterr().out
    assert len(list(tmp_path.glob("previous_*"))) == 2


def test_a_finished_run_says_so(tmp_path, capsys):
    run_toy(tmp_path, **{"train_cfg.max_epochs": 2})
    run_toy(tmp_path, resume=True, **{"train_cfg.max_epochs": 2})
    log = capsys.readouterr().out
    assert "already finished: 2 of 2 epochs (raise train_cfg.max_epochs to go on)" in log
    run_toy(tmp_path, resume=True, **{"train_cfg.max_epochs": 3})
    assert "already finished" not in capsys.readouterr().out


def test_a_removed_newest_checkpoint_is_missing_not_broken(tmp_path, capsys):
    run_toy(tmp_path, **{"train_cfg.max_epochs": 2})
    (tmp_path / "epoch_2.pth").unlink()
    capsys.readouterr()
    runner = run_toy(tmp_path, resume=True, **{"train_cfg.max_epochs": 2})
    log = capsys.readouterr().out
    assert f"last_checkpoint names {tmp_path / 'epoch_2.pth'}, which is missing" in log
    assert "broken" not in log
    assert runner.resume_source == str(tmp_path / "epoch_1.pth")


def test_a_validation_after_a_resume_is_noted_in_the_file(tmp_path):
    """Killed before the validation, then in the next epoch: it is there once in the end."""
    hooks = {**EPOCH, "train_cfg.max_epochs": 4}
    run_and_die(tmp_path, **hooks, **traced(tmp_path / "x", kill_after_epoch=3))
    saved = tmp_path / "epoch_2.pth"
    run_toy(tmp_path, resume=True, load_from=str(saved), **{**hooks, "train_cfg.max_epochs": 2})
    stored = torch.load(saved, weights_only=True)["message_hub"]["runtime_info"]
    assert stored["validated_epoch"] == 2
    third = torch.load(tmp_path / "epoch_3.pth", weights_only=True)["message_hub"]["runtime_info"]
    assert third["validated_epoch"] == 2
    run_and_die(tmp_path, resume=True, **hooks, **traced(tmp_path / "x", kill_after=20))
    third = torch.load(tmp_path / "epoch_3.pth", weights_only=True)["message_hub"]["runtime_info"]
    assert third["validated_epoch"] == 3
    run_toy(tmp_path, resume=True, **hooks)
    rows = [line["epoch"] for line in read_lines(tmp_path / "scalars.json") if "val/top1" in line]
    assert rows == [1, 2, 3, 4]


def test_files_of_interruptions_go_with_the_next_regular_checkpoint(tmp_path):
    class Interrupt(Hook):
        def __init__(self, at):
            self.at = at

        def before_train_iter(self, runner, batch_idx, data_batch=None):
            if runner.iter + 1 == self.at:
                signal.raise_signal(signal.SIGTERM)

    for at, resume in [(8, False), (9, True)]:
        runner = Runner.from_cfg(toy_config(tmp_path, resume=resume))
        runner.register_hook(Interrupt(at))
        with pytest.raises(Interrupted):
            runner.train()
    names = {path.name for path in tmp_path.glob("*.pth")}
    assert names == {"epoch_1.pth", "iter_8.pth", "iter_9.pth"}
    source = {"resume": True, "load_from": str(tmp_path / "iter_9.pth")}
    run_toy(tmp_path / "other", **source, **{"train_cfg.max_epochs": 2})
    assert (tmp_path / "iter_9.pth").exists()
    run_toy(tmp_path, resume=True, **{"train_cfg.max_epochs": 2})
    assert {path.name for path in tmp_path.glob("*.pth")} == {"epoch_1.pth", "epoch_2.pth"}


def test_no_gradient_is_lost_and_none_is_said_to_be(tmp_path, capsys):
    changes = {**MID_EPOCH, **ACCUMULATED, "train_cfg.max_epochs": 2}
    run_toy(tmp_path, **changes)
    source = {"resume": True, "load_from": str(tmp_path / "iter_4.pth")}
    capsys.readouterr()
    run_toy(tmp_path, **source, **changes)
    log = capsys.readouterr().out
    assert "iteration 4" in log
    assert "is lost" not in log
