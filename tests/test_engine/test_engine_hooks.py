"""Health, kept checkpoints, progress, interruption, run card and trackers."""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import sys
import types

import pytest
import torch
from engine_toy import read_lines, run_toy, toy_config, weights_of
from mmengine.hooks import Hook

from polaformer.engine import trackers
from polaformer.engine.hooks import TrainingDiverged, interrupt
from polaformer.engine.hooks.health import gradients_finite
from polaformer.engine.hooks.interrupt import Interrupted
from polaformer.engine.hooks.progress import ProgressHook
from polaformer.engine.runner import Runner

ONE_EPOCH = {"train_cfg.max_epochs": 1}
FP16 = {"optim_wrapper.type": "AmpOptimWrapper", "optim_wrapper.dtype": "float16"}


class Poison(Hook):
    """Write a value that is not finite into a weight after an epoch."""

    priority = "VERY_HIGH"

    def __init__(self, epoch):
        self.epoch = epoch

    def after_train_epoch(self, runner):
        if runner.epoch + 1 == self.epoch:
            with torch.no_grad():
                runner.model.head.bias[0] = math.inf


@pytest.mark.parametrize("value, finite", [(1e30, True), (math.nan, False), (-math.inf, False)])
def test_gradients_finite(value, finite):
    parameters = [torch.zeros(3, requires_grad=True) for _ in range(3)]
    parameters[0].grad = torch.ones(3)
    parameters[1].grad = torch.tensor([0.0, value, 1.0])
    assert gradients_finite(parameters) is finite
    assert gradients_finite([torch.zeros(2, requires_grad=True)])


@pytest.mark.parametrize("amp", [{}, FP16])
def test_a_single_bad_step_leaves_the_weights_alone(tmp_path, capsys, amp):
    runner = run_toy(tmp_path, **ONE_EPOCH, **amp, **{"model.poison": [3]})
    assert all(torch.isfinite(value).all() for value in weights_of(runner).values())
    assert "iteration 3: loss nan; the weights are left as they were" in capsys.readouterr().out
    assert runner.iter == 6


def test_a_skipped_step_changes_neither_weights_nor_momentum(tmp_path):
    """Poisoning steps 4 to 6 leaves the weights where three good steps have put them."""
    good = run_toy(tmp_path / "a", **ONE_EPOCH, **{"train_dataloader.dataset.count": 12})
    snapshot = {}

    class Snapshot(Hook):
        priority = "LOWEST"

        def after_train_iter(self, runner, batch_idx, data_batch=None, outputs=None):
            snapshot[runner.iter + 1] = weights_of(runner)

    config = toy_config(tmp_path / "b", **ONE_EPOCH, **{"model.poison": [4, 5, 6]})
    runner = Runner.from_cfg(config)
    runner.register_hook(Snapshot())
    with pytest.raises(TrainingDiverged, match="3 steps in a row"):
        runner.train()
    assert all(torch.equal(snapshot[3][key], snapshot[6][key]) for key in snapshot[3])
    assert not torch.equal(weights_of(good)["head.weight"], snapshot[6]["head.weight"])


@pytest.mark.parametrize("amp", [{}, FP16])
def test_bad_steps_in_a_row_stop_the_run(tmp_path, amp):
    changes = {
        "model.poison": [8, *range(10, 40)],
        "default_hooks": {"health": {"max_bad_steps": 4}},
    }
    with pytest.raises(TrainingDiverged) as caught:
        run_toy(tmp_path, **changes, **amp)
    message = str(caught.value)
    assert "stopped at iteration 13 (epoch 3): 4 steps in a row" in message
    assert str(tmp_path / "epoch_1.pth") in message
    assert "last loss nan" in message


def test_weights_that_are_not_finite_are_not_stored(tmp_path, capsys):
    hooks = {"default_hooks": {"checkpoint": {"save_best": "loss", "rule": "less"}}}
    runner = Runner.from_cfg(toy_config(tmp_path, **hooks, **{"train_cfg.max_epochs": 3}))
    runner.register_hook(Poison(3))
    runner.train()
    assert sorted(path.name for path in tmp_path.glob("*.pth")) == [
        "best_loss_epoch_2.pth",
        "epoch_1.pth",
        "epoch_2.pth",
    ]
    log = capsys.readouterr().out
    assert "1 weights are not finite, for example head.bias" in log
    assert "loss is not finite" in log


def test_old_checkpoints_go_after_the_new_one_is_there(tmp_path, monkeypatch):
    hooks = {"default_hooks": {"checkpoint": {"save_best": "loss", "max_keep_ckpts": 1}}}
    present = []
    original = Runner.save_checkpoint

    def watching(self, out_dir, filename, *args, **kwargs):
        present.append(({path.name for path in tmp_path.glob("*.pth")}, filename))
        return original(self, out_dir, filename, *args, **kwargs)

    monkeypatch.setattr(Runner, "save_checkpoint", watching)
    run_toy(tmp_path, **hooks, **{"train_cfg.max_epochs": 3})
    for before, filename in present[1:]:
        family = "best_" if filename.startswith("best") else "epoch_"
        assert (
            any(name.startswith(family) for name in before) or filename == "best_loss_epoch_1.pth"
        )
    assert sorted(p.name for p in tmp_path.glob("*.pth")) == [
        "best_loss_epoch_3.pth",
        "epoch_3.pth",
    ]
    assert (tmp_path / "last_checkpoint").read_text() == str(tmp_path / "epoch_3.pth")


def test_a_signal_saves_and_stops_and_the_run_goes_on_exactly(tmp_path):
    straight = run_toy(tmp_path / "a", **{"train_cfg.max_epochs": 2})

    class Signal(Hook):
        def before_train_iter(self, runner, batch_idx, data_batch=None):
            if runner.iter == 7:
                os.kill(os.getpid(), signal.SIGTERM)

    runner = Runner.from_cfg(toy_config(tmp_path / "b", **{"train_cfg.max_epochs": 2}))
    runner.register_hook(Signal())
    with pytest.raises(Interrupted, match="stopped after iteration 8"):
        runner.train()
    assert (tmp_path / "b" / "iter_8.pth").exists()
    resumed = run_toy(tmp_path / "b", resume=True, **{"train_cfg.max_epochs": 2})
    expected, found = weights_of(straight), weights_of(resumed)
    assert all(torch.equal(expected[key], found[key]) for key in expected)


@pytest.fixture
def asked(monkeypatch):
    """An InterruptHook that listens, and what reached the handlers that were there before."""
    reached = []
    numbers = (signal.SIGTERM, signal.SIGINT)
    before = {n: signal.signal(n, lambda number, frame: reached.append(number)) for n in numbers}
    hook = interrupt.InterruptHook()
    hook.before_train(None)
    yield hook, reached
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize(
    "repeat, grace, passed_on",
    [
        (signal.SIGTERM, 60.0, False),
        (signal.SIGINT, 60.0, False),
        (signal.SIGTERM, 0.0, False),
        (signal.SIGINT, 0.0, True),
    ],
)
def test_a_repeated_signal(asked, monkeypatch, repeat, grace, passed_on):
    """torchrun forwards the signal that its workers got too; only a later Ctrl-C is a wish."""
    hook, reached = asked
    monkeypatch.setattr(interrupt, "GRACE_SECONDS", grace)
    signal.raise_signal(repeat)
    assert hook._asked == repeat
    signal.raise_signal(repeat)
    assert reached == ([repeat] if passed_on else [])


def test_after_the_end_a_signal_goes_where_it_went_before(asked, monkeypatch):
    hook, reached = asked
    signal.raise_signal(signal.SIGTERM)
    hook._ended = True
    signal.raise_signal(signal.SIGTERM)
    assert reached == []
    monkeypatch.setattr(interrupt, "GRACE_SECONDS", 0.0)
    signal.raise_signal(signal.SIGTERM)
    assert reached == [signal.SIGTERM]


def test_the_handlers_of_before_come_back_after_a_full_run(tmp_path):
    before = signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)
    run_toy(tmp_path, **ONE_EPOCH)
    assert (signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)) == before


def test_the_work_folder_is_flat_and_complete(tmp_path):
    run_toy(tmp_path, **ONE_EPOCH)
    assert not [path for path in tmp_path.iterdir() if path.is_dir()]
    names = {path.name for path in tmp_path.iterdir()}
    expected = {"config.py", "run_card.json", "scalars.json", "epoch_1.pth", "last_checkpoint"}
    assert expected <= names
    assert len(list(tmp_path.glob("*.log"))) == 1
    line = read_lines(tmp_path / "scalars.json")[0]
    assert {"loss", "lr", "images_per_s", "data_share", "peak_mib", "step", "epoch"} <= set(line)
    assert line["images_per_s"] > 0
    assert 0 <= line["data_share"] <= 1


def test_the_run_card_tells_the_story(tmp_path):
    run_toy(tmp_path, **ONE_EPOCH)
    run_toy(tmp_path, resume=True, **{"train_cfg.max_epochs": 2})
    card = json.loads((tmp_path / "run_card.json").read_text())
    assert card["status"] == "finished"
    assert card["data"]["train"] == {"samples": 12, "classes": 3, "fingerprint": "toy-12"}
    assert [start["iteration"] for start in card["starts"]] == [0, 6]
    assert card["starts"][1]["resumed_from"].endswith("epoch_1.pth")
    assert card["starts"][1]["end_epoch"] == 2
    assert card["versions"]["mmengine"]
    assert card["metrics"]["epoch"] == 2
    assert len(card["config_hash"]) == 12


def test_a_new_run_sets_old_scalars_aside(tmp_path):
    run_toy(tmp_path, **ONE_EPOCH)
    run_toy(tmp_path, **ONE_EPOCH)
    assert len(list(tmp_path.glob("previous_*/scalars.json"))) == 1
    assert len(read_lines(tmp_path / "scalars.json")) == 2


def test_scalars_after_the_resumed_iteration_are_dropped(tmp_path):
    backend = trackers.LocalBackend(str(tmp_path))
    for step in (5, 10, 15):
        backend.log({"loss": 1.0}, step)
    with (tmp_path / "scalars.json").open("a") as stream:
        stream.write('{"loss": 1.0, "st')
    backend.begin(10)
    assert [line["step"] for line in read_lines(tmp_path / "scalars.json")] == [5, 10]


def fake_wandb(monkeypatch, fail_online=False):
    calls = {"init": [], "log": []}

    def init(**options):
        calls["init"].append(options)
        if fail_online and options["mode"] != "offline":
            raise ConnectionError("no network")
        run = types.SimpleNamespace(finish=lambda: None)
        run.log = lambda scalars, step: calls["log"].append((step, scalars))
        return run

    module = types.ModuleType("wandb")
    module.init = init
    module.teardown = lambda: calls["log"].clear()
    monkeypatch.setitem(sys.modules, "wandb", module)
    return calls


WANDB = {"visualizer": {"type": "Visualizer", "vis_backends": [{"type": "WandbBackend"}]}}


def test_wandb_keeps_one_run_across_resumes(tmp_path, monkeypatch):
    calls = fake_wandb(monkeypatch)
    run_toy(tmp_path, **WANDB, **ONE_EPOCH)
    run_toy(tmp_path, resume=True, **WANDB, **{"train_cfg.max_epochs": 2})
    ids = {options["id"] for options in calls["init"]}
    assert len(calls["init"]) == 2
    assert ids == {json.loads((tmp_path / "wandb_run.json").read_text())["id"]}
    assert calls["init"][0]["config"]["model"]["type"] == "ToyClassifier"
    assert [step for step, _ in calls["log"]] == [6, 6, 12, 12]


def test_wandb_without_a_key_never_asks(tmp_path, monkeypatch, capsys):
    calls = fake_wandb(monkeypatch)
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    for name in ("WANDB_API_KEY", "WANDB_MODE", "WANDB_IDENTITY_TOKEN_FILE", "WANDB_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    assert not trackers.has_wandb_key()
    trackers.WandbBackend(str(tmp_path)).log({"loss": 1.0}, 1)
    assert calls["init"][0]["mode"] == "offline"
    (tmp_path / "netrc").write_text("machine api.wandb.ai login user password secret")
    assert trackers.has_wandb_key()
    trackers.WandbBackend(str(tmp_path)).log({"loss": 1.0}, 1)
    assert calls["init"][1]["mode"] is None


def test_wandb_without_network_goes_offline(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("WANDB_API_KEY", "0" * 40)
    monkeypatch.delenv("WANDB_MODE", raising=False)
    calls = fake_wandb(monkeypatch, fail_online=True)
    run_toy(tmp_path, **WANDB, **ONE_EPOCH)
    assert [options["mode"] for options in calls["init"]] == [None, "offline"]
    assert "continues offline" in capsys.readouterr().out


def test_wandb_starts_before_training(tmp_path, monkeypatch):
    calls = fake_wandb(monkeypatch)
    settings = {"init_kwargs": {"settings": {"quiet": True}}}
    backends = {"vis_backends": [{"type": "WandbBackend", **settings}]}
    started = []

    class First(Hook):
        def before_train_epoch(self, runner):
            started.append(len(calls["init"]))

    config = toy_config(tmp_path, visualizer={"type": "Visualizer", **backends}, **ONE_EPOCH)
    runner = Runner.from_cfg(config)
    runner.register_hook(First())
    runner.train()
    assert started == [1]
    assert calls["init"][0]["settings"] == {"init_timeout": 10, "quiet": True}


def test_wandb_with_an_unreachable_server_really_records_offline(tmp_path):
    """Nothing listens on port 9; one process of its own, since wandb keeps a global session."""
    pytest.importorskip("wandb")
    (tmp_path / "wandb_run.json").write_text('{"id": "abcd1234", "project": "polaformer"}')
    program = (
        "from polaformer.engine import trackers\n"
        "trackers.WANDB_SECONDS = 1\n"
        f"backend = trackers.WandbBackend({str(tmp_path)!r})\n"
        "backend.begin(0)\n"
        "backend.log({'loss': 1.0}, 1)\n"
        "backend.close()\n"
        "assert backend.on\n"
    )
    server = {"WANDB_API_KEY": "a" * 40, "WANDB_BASE_URL": "http://127.0.0.1:9"}
    environment = {k: v for k, v in os.environ.items() if k != "WANDB_MODE"}
    subprocess.run(
        [sys.executable, "-c", program],
        env={**environment, **server, "WANDB_SILENT": "true"},
        check=True,
        timeout=100,
    )
    assert json.loads((tmp_path / "wandb_run.json").read_text())["id"] == "abcd1234"
    (folder,) = (tmp_path / "wandb").glob("offline-run-*-abcd1234")
    assert list(folder.glob("run-abcd1234.wandb"))


def test_a_missing_tracker_is_one_warning(tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "wandb", None)
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    backends = [{"type": "WandbBackend"}, {"type": "TensorboardBackend"}]
    runner = run_toy(tmp_path, visualizer={"vis_backends": backends}, **{"train_cfg.max_epochs": 2})
    log = capsys.readouterr().out
    assert log.count("wandb is switched off") == 1
    assert log.count("TensorBoard is switched off") == 1
    assert runner.epoch == 2


def test_tensorboard_writes_events(tmp_path):
    pytest.importorskip("tensorboard")
    backend = trackers.TensorboardBackend(str(tmp_path))
    backend.log({"loss": 1.0, "epoch": 1}, 5)
    backend.close()
    assert list((tmp_path / "tensorboard").glob("events*"))
    assert backend.on


def test_wandb_offline_really_works(tmp_path, monkeypatch):
    pytest.importorskip("wandb")
    monkeypatch.setenv("WANDB_SILENT", "true")
    backend = trackers.WandbBackend(str(tmp_path), mode="offline")
    backend.log({"loss": 1.0}, 1)
    backend.close()
    assert backend.on
    assert list((tmp_path / "wandb").glob("offline-run-*"))


def test_the_progress_bar_shows_and_leaves(tmp_path, capsys):
    run_toy(tmp_path, **ONE_EPOCH, **{"default_hooks": {"progress": {"enabled": True}}})
    out = capsys.readouterr().out
    assert "epoch 1/1" in out
    assert "6/6" in out
    assert "Epoch(train)" not in out
    assert "Epoch(val)" in out
    assert "Epoch(train)" in next(tmp_path.glob("*.log")).read_text()


def test_no_bar_without_a_terminal(tmp_path):
    runner = run_toy(tmp_path, **ONE_EPOCH)
    bar = next(hook for hook in runner.hooks if isinstance(hook, ProgressHook))
    assert bar._bar is None


def test_a_default_hook_can_be_taken_out(tmp_path):
    hooks = {"default_hooks": {"health": None, "progress": None}}
    runner = Runner.from_cfg(toy_config(tmp_path, **hooks))
    names = runner.get_hooks_info()
    assert "HealthHook" not in names
    assert "RunCardHook" in names


def test_scalars_that_are_not_finite_are_null(tmp_path):
    backend = trackers.LocalBackend(str(tmp_path))
    backend.log({"loss": float("nan"), "lr": 0.1}, 1)
    (line,) = (tmp_path / "scalars.json").read_text().splitlines()
    assert json.loads(line, parse_constant=pytest.fail) == {"loss": None, "lr": 0.1, "step": 1}


def test_an_interruption_among_bad_steps_saves_nothing(tmp_path):
    runner = types.SimpleNamespace(
        iter=7,
        work_dir=str(tmp_path),
        message_hub=types.SimpleNamespace(get_info=lambda key, default: 3),
    )
    hook = interrupt.InterruptHook()
    hook._asked = signal.SIGTERM
    with pytest.raises(Interrupted, match="not saved"):
        hook.after_train_iter(runner, 0)
    assert list(tmp_path.iterdir()) == []


def test_the_best_by_the_first_metric_and_none_where_it_is_missing(tmp_path, capsys):
    hooks = {"default_hooks": {"checkpoint": {"save_best": "auto", "rule": "greater"}}}
    runner = run_toy(tmp_path, **hooks, **{"train_cfg.max_epochs": 2})
    assert [path.name for path in tmp_path.glob("best_*.pth")] == ["best_top1_epoch_2.pth"]
    hook = next(hook for hook in runner.hooks if hasattr(hook, "key_indicators"))
    hook._save_best_checkpoint(runner, {"other": 1.0})
    assert "this validation gave no top1, only other" in capsys.readouterr().out
