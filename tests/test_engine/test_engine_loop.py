"""The loop, accumulation, several processes, early stopping, best checkpoint, starting weights."""

from __future__ import annotations

import multiprocessing
import os
from types import SimpleNamespace

import pytest
import torch
from engine_toy import ToyClassifier, read_lines, run_toy, toy_config, weights_of
from torch import nn

from polaformer.checkpoint.errors import CheckpointError
from polaformer.engine import batch_norm
from polaformer.engine.runner import Runner
from polaformer.errors import UserError

ONE_EPOCH = {"train_cfg.max_epochs": 1}
NO_FILES = {"default_hooks": {"checkpoint": {"save_last": False, "interval": 100}}}
TRACE = "custom_hooks"


def trace(path):
    return {TRACE: [{"type": "ToyTrace", "path": str(path)}]}


def test_an_epoch_without_a_batch_is_refused(tmp_path):
    changes = {
        "train_dataloader.dataset.count": 3,
        "train_dataloader.batch_size": 4,
        "train_dataloader.drop_last": True,
    }
    with pytest.raises(UserError, match=r"no batch: 3 images, batch_size=4.*at most 3"):
        run_toy(tmp_path, **changes)


def test_the_last_accumulation_of_a_run_is_stepped(tmp_path):
    """6 batches in groups of 4: a full step, then one of the two batches that are left."""
    steps = []
    original = torch.optim.SGD.step

    def counted(self, *args, **kwargs):
        steps.append([p.grad.clone() for group in self.param_groups for p in group["params"]])
        return original(self, *args, **kwargs)

    config = toy_config(tmp_path, **ONE_EPOCH, **NO_FILES)
    config.optim_wrapper.accumulative_counts = 4
    runner = Runner.from_cfg(config)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch.optim.SGD, "step", counted)
        runner.train()
    assert len(steps) == 2
    assert all(torch.isfinite(gradient).all() for step in steps for gradient in step)


def run_rank(rank, world, port_file, work_dir, changes):
    os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(world))
    config = toy_config(work_dir, launcher="pytorch", **changes)
    config.env_cfg = {"dist_cfg": {"backend": "gloo", "init_method": f"file://{port_file}"}}
    runner = Runner.from_cfg(config)
    runner.train()
    torch.save(runner.model.module.state_dict(), f"{work_dir}/final_{rank}.pth")


def run_processes(tmp_path, name, **changes):
    work_dir = tmp_path / name
    work_dir.mkdir(exist_ok=True)
    meeting = tmp_path / f"{name}-{len(list(tmp_path.iterdir()))}"
    context = multiprocessing.get_context("fork")
    jobs = [
        context.Process(target=run_rank, args=(rank, 2, meeting, work_dir, changes))
        for rank in range(2)
    ]
    for job in jobs:
        job.start()
    for job in jobs:
        job.join(90)
    assert [job.exitcode for job in jobs] == [0, 0]
    return [torch.load(work_dir / f"final_{r}.pth", weights_only=True) for r in range(2)]


def test_two_processes_equal_one_with_the_joint_batch(tmp_path):
    """Without dropout the gradient of the joint batch is the mean of the two halves."""
    common = {"train_cfg.max_epochs": 2, "model.dropout": 0.0}
    one = weights_of(run_toy(tmp_path / "one", **common, **{"train_dataloader.batch_size": 4}))
    first, second = run_processes(tmp_path, "two", **common)
    for key, value in one.items():
        assert torch.equal(first[key], second[key])
        torch.testing.assert_close(first[key], value, rtol=1e-5, atol=1e-6)
    half = {"train_cfg.max_epochs": 1, "model.dropout": 0.0, "param_scheduler": None}
    straight = {**common, "param_scheduler": None}
    reference, _ = run_processes(tmp_path, "straight", **straight)
    run_processes(tmp_path, "halves", **half)
    resumed, _ = run_processes(tmp_path, "halves", **{**straight, "resume": True})
    assert all(torch.equal(reference[key], resumed[key]) for key in reference)


def test_early_stopping_ends_the_run_and_stays_stopped(tmp_path):
    stop = {
        "custom_hooks": [
            {"type": "EarlyStoppingHook", "monitor": "top1", "patience": 2, "min_delta": 200.0}
        ]
    }
    runner = run_toy(tmp_path, **stop)
    assert runner.epoch == 3
    again = run_toy(tmp_path, resume=True, **stop)
    assert again.epoch == 3


def test_the_validation_loss_is_that_of_this_validation(tmp_path):
    run_toy(tmp_path, **{"train_cfg.max_epochs": 3})
    lines = [line for line in read_lines(tmp_path / "scalars.json") if "val/loss" in line]
    assert [line["epoch"] for line in lines] == [1, 2, 3]
    assert len({line["val/loss"] for line in lines}) == 3
    runner = Runner.from_cfg(toy_config(tmp_path / "t", load_from=str(tmp_path / "epoch_3.pth")))
    assert runner.test()["loss"] == pytest.approx(lines[-1]["val/loss"], abs=1e-6)
    best = {"default_hooks": {"checkpoint": {"save_best": "loss"}}}
    load = {"load_from": str(tmp_path / "epoch_3.pth")}
    runner = Runner.from_cfg(toy_config(tmp_path / "v", **load, **best))
    assert runner.val()["loss"] == pytest.approx(lines[-1]["val/loss"], abs=1e-6)
    assert not list((tmp_path / "v").glob("*.pth"))


@pytest.mark.parametrize("amp, dtype", [("bf16", torch.bfloat16), ("fp16", torch.float16)])
def test_evaluation_follows_the_half_type(tmp_path, monkeypatch, amp, dtype):
    seen = set()
    original = ToyClassifier.forward

    def spying(self, inputs, labels=None, indices=None, mode="tensor"):
        seen.add(self.head(self.backbone(inputs)).dtype)
        return original(self, inputs, labels, indices, mode)

    monkeypatch.setattr(ToyClassifier, "forward", spying)
    wrapper = {"optim_wrapper.type": "AmpOptimWrapper", "optim_wrapper.dtype": str(dtype)[6:]}
    run_toy(tmp_path, **wrapper, **ONE_EPOCH, **NO_FILES)
    assert seen == {dtype}
    seen.clear()
    path = tmp_path / "bare.pth"
    torch.save(ToyClassifier().state_dict(), path)
    Runner.from_cfg(toy_config(tmp_path, load_from=str(path), test_cfg={"amp": amp})).test()
    assert seen == {dtype}
    with pytest.raises(UserError, match="amp='half'"):
        Runner.from_cfg(toy_config(tmp_path, load_from=str(path), test_cfg={"amp": "half"})).test()


@pytest.fixture
def donor(tmp_path):
    torch.manual_seed(5)
    model = ToyClassifier(classes=7)
    state = {f"module.{key}": value for key, value in model.state_dict().items()}
    torch.save({"model": state}, tmp_path / "donor.pth")
    return model


FROZEN = {"optim_wrapper.optimizer.lr": 0.0, "param_scheduler": None}


def test_weights_of_a_backbone_by_init_cfg(tmp_path, capsys, donor):
    """Also where the module's own ``init_weights`` does nothing; a resumed run needs no file."""
    path = tmp_path / "donor.pth"
    init = {"type": "Pretrained", "checkpoint": str(path)}
    changes = {"model.backbone_init": init, **FROZEN}
    runner = run_toy(tmp_path / "a", **ONE_EPOCH, **changes)
    assert torch.equal(runner.model.backbone.fc.weight, donor.backbone.fc.weight)
    log = capsys.readouterr().out
    assert "donor.pth: 2 of 2 loaded" in log
    assert "ignored: " in log
    assert "head.weight" in log
    path.unlink()
    again = run_toy(tmp_path / "a", resume=True, **{"train_cfg.max_epochs": 2}, **changes)
    assert torch.equal(again.model.backbone.fc.weight, donor.backbone.fc.weight)


def test_weights_of_the_model_by_load_from(tmp_path, capsys, donor):
    load = {"checkpoint": str(tmp_path / "donor.pth"), "allow_shape_mismatch": ["head.*"]}
    runner = run_toy(tmp_path / "b", load_from=load, **ONE_EPOCH, **NO_FILES, **FROZEN)
    assert "2 of 2 loaded" in capsys.readouterr().out
    assert torch.equal(runner.model.backbone.fc.weight, donor.backbone.fc.weight)
    with pytest.raises(CheckpointError, match=r"\(7, 8\).*\(3, 8\)"):
        run_toy(tmp_path / "c", load_from=load["checkpoint"], **ONE_EPOCH, **NO_FILES)


def test_weights_of_something_else_stop_the_run(tmp_path):
    path = tmp_path / "foo.pth"
    torch.save({f"foo.{k}": v for k, v in ToyClassifier().state_dict().items()}, path)
    changed = torch.load(path, weights_only=True)
    torch.save(
        {k.replace("fc", "dense").replace("head", "top"): v for k, v in changed.items()}, path
    )
    with pytest.raises(CheckpointError, match=r"0 of \d"):
        run_toy(tmp_path, load_from=str(path), **ONE_EPOCH)
    with pytest.raises(UserError, match="load_from is a path or a dict"):
        run_toy(tmp_path, load_from={"checkpoint": str(path), "strict": True}, **ONE_EPOCH)


def test_a_test_needs_the_whole_model(tmp_path):
    path = tmp_path / "backbone.pth"
    state = ToyClassifier().state_dict()
    torch.save({k: v for k, v in state.items() if k.startswith("backbone")}, path)
    with pytest.raises(CheckpointError, match=r"does not hold the whole model|of \d"):
        Runner.from_cfg(toy_config(tmp_path, load_from=str(path))).test()


def test_only_the_backbone_is_compiled_and_names_stay(tmp_path):
    plain = run_toy(tmp_path / "a", **ONE_EPOCH)
    runner = run_toy(tmp_path / "b", compile={"backend": "eager"}, **ONE_EPOCH)
    assert runner.model.backbone._compiled_call_impl is not None
    assert runner.model._compiled_call_impl is None
    expected, found = weights_of(plain), weights_of(runner)
    assert list(expected) == list(found)
    assert all(torch.equal(expected[key], found[key]) for key in expected)


def test_iterations_without_epochs_run_and_resume(tmp_path):
    """mmengine's loop by iterations works with the runner; its checkpoints are by iteration."""
    hooks = {"default_hooks": {"checkpoint": {"interval": 4, "by_epoch": False}}}

    def changes(iterations):
        loop = {"by_epoch": False, "max_iters": iterations, "val_interval": 4, "_delete_": True}
        return {"train_cfg": loop, "param_scheduler": None, **hooks}

    straight = run_toy(tmp_path / "a", **changes(8))
    run_toy(tmp_path / "b", **changes(4))
    resumed = run_toy(tmp_path / "b", resume=True, **changes(8))
    expected, found = weights_of(straight), weights_of(resumed)
    assert all(torch.equal(expected[key], found[key]) for key in expected)


def test_the_learning_rate_follows_the_images_of_an_update(tmp_path):
    """Batch 2, 3 steps accumulated, config for 12: half the rate, in every group and in the log."""
    config = toy_config(tmp_path, **ONE_EPOCH, **NO_FILES)
    config.train_dataloader.batch_size = 2
    config.optim_wrapper.accumulative_counts = 3
    config.param_scheduler = None
    config.auto_scale_lr = dict(enable=True, base_batch_size=12)
    rate = config.optim_wrapper.optimizer.lr
    runner = Runner.from_cfg(config)
    runner.train()
    rates = runner.optim_wrapper.get_lr()
    assert set(rates["lr"]) == {rate / 2}
    assert rates.get("base_lr", [rate / 2]) == [rate / 2]


def test_a_test_takes_no_deeper_model(tmp_path):
    """Every weight of the model is in the file, and yet it is another model's."""
    path = tmp_path / "deeper.pth"
    state = {**ToyClassifier().state_dict(), "backbone.stages.0.blocks.1.weight": torch.ones(3)}
    torch.save(state, path)
    with pytest.raises(CheckpointError, match=r"another model: 1 tensors.*stages\.0\.blocks\.1"):
        Runner.from_cfg(toy_config(tmp_path, load_from=str(path))).test()


@pytest.mark.parametrize("asked", [None, "torch"])
@pytest.mark.parametrize("kind", [nn.SyncBatchNorm, nn.BatchNorm2d])
def test_batch_norm_over_processes_is_that_of_each_one_on_cpus_and_said(kind, asked):
    said: list[str] = []
    layers = nn.Sequential(nn.Conv2d(3, 4, 1), kind(4))
    logger = SimpleNamespace(warning=said.append)
    model = batch_norm.of_each_process(layers, logger, wanted=asked is not None)
    assert not isinstance(model[1], nn.SyncBatchNorm)
    assert model(torch.randn(2, 3, 5, 5)).isfinite().all()
    spoken = kind is nn.SyncBatchNorm or asked is not None
    assert [text.startswith("SyncBN needs GPUs") for text in said] == [True] * spoken


def test_batch_norm_of_one_process_takes_the_place_of_that_over_all_and_is_told():
    said: list[str] = []
    logger = SimpleNamespace(info=said.append)
    parts = [nn.Conv2d(3, 4, 1), nn.SyncBatchNorm(4), nn.Sequential(nn.SyncBatchNorm(4))]
    model = batch_norm.of_one_process(nn.Sequential(*parts), logger)
    assert model(torch.randn(2, 3, 5, 5)).isfinite().all()
    assert [text.split(":")[0] for text in said] == [
        "2 layers of SyncBN are BatchNorm in one process"
    ]
    batch_norm.of_one_process(nn.Sequential(nn.BatchNorm2d(4)), logger)
    assert len(said) == 1
