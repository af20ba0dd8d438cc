"""Each repair of mmengine works, and each is still needed."""

from __future__ import annotations

import importlib.util
import io
import pickle
import warnings
from pathlib import Path

import mmengine.device.utils as device_utils
import mmengine.dist.utils as dist_utils
import mmengine.runner.amp as amp
import numpy as np
import pytest
import torch
from mmengine.config import Config
from mmengine.logging import MessageHub
from mmengine.optim import AmpOptimWrapper

from polaformer import compat
from polaformer.compat import runtime, versions
from polaformer.compat.mmengine import OPAQUE, ORIGINALS, plain

compat.apply_runtime()


@pytest.fixture
def on_cpu(monkeypatch):
    monkeypatch.setattr(device_utils, "DEVICE", "cpu")


@pytest.fixture
def hub():
    hub = MessageHub("compat-test")
    for value in (1.0, 2.0, 4.0):
        hub.update_scalar("train/loss", value)
    hub.update_info("best_score", np.float64(97.5))
    hub.update_info("dataset_meta", {"classes": ("a", "b"), "palette": np.zeros(2)})
    hub.update_info("hook", object())
    return hub


def assert_still_broken(call, *errors):
    """The unrepaired ``call`` must fail; when it works, the repair has had its day."""
    try:
        call()
    except errors:
        return
    pytest.fail("mmengine mends this itself now: this repair can go")


def safe_round_trip(state):
    buffer = io.BytesIO()
    torch.save(state, buffer)
    buffer.seek(0)
    return torch.load(buffer, weights_only=True)


def test_applying_twice_changes_nothing():
    before = (Config._merge_a_into_b, MessageHub.state_dict, amp.autocast)
    compat.apply_runtime()
    assert before == (Config._merge_a_into_b, MessageHub.state_dict, amp.autocast)


@pytest.mark.parametrize("base", [None, "none", 0])
def test_a_dict_replaces_a_plain_value_of_the_base(base):
    base = {"optim": {"clip_grad": base, "lr": 1}}
    child = {"optim": {"clip_grad": {"max_norm": 1}}}
    merged = Config._merge_a_into_b(child, base)
    assert merged == {"optim": {"clip_grad": {"max_norm": 1}, "lr": 1}}
    assert base["optim"]["clip_grad"] is not merged["optim"]["clip_grad"]


def test_a_dict_is_still_merged_into_a_dict_and_by_index_into_a_list():
    merge = Config._merge_a_into_b
    assert merge({"m": {"a": 2}}, {"m": {"a": 1, "b": 3}}) == {"m": {"a": 2, "b": 3}}
    assert merge({"0": {"a": 2}}, [{"a": 1}, {"b": 2}], True) == [{"a": 2}, {"b": 2}]


def test_the_merge_repair_works_from_files(tmp_path):
    (tmp_path / "base.py").write_text("optim = dict(clip_grad=None)\n")
    child = "_base_ = './base.py'\noptim = dict(clip_grad=dict(max_norm=1))\n"
    (tmp_path / "child.py").write_text(child)
    assert Config.fromfile(tmp_path / "child.py").optim.clip_grad == {"max_norm": 1}


def test_the_merge_repair_is_still_needed(monkeypatch):
    original = ORIGINALS["Config._merge_a_into_b"]
    monkeypatch.setattr(Config, "_merge_a_into_b", original)
    assert_still_broken(lambda: original({"c": {"max_norm": 1}}, {"c": None}), TypeError)


def test_the_message_hub_survives_the_safe_loader(hub):
    state = safe_round_trip(hub.state_dict())
    assert type(state["runtime_info"]["best_score"]) is float
    assert "hook" not in state["runtime_info"]
    fresh = MessageHub("compat-test-fresh")
    fresh.load_state_dict(state)
    assert fresh.get_scalar("train/loss").data[0].tolist() == [1.0, 2.0, 4.0]
    assert fresh.get_info("dataset_meta") == {"classes": ("a", "b"), "palette": [0.0, 0.0]}
    fresh.update_scalar("train/loss", 8.0)
    assert fresh.get_scalar("train/loss").mean(2) == 6.0


def test_a_long_history_is_cut_in_the_checkpoint(hub):
    for value in range(1500):
        hub.update_scalar("train/lr", float(value))
    values = hub.state_dict()["log_scalars"]["train/lr"]["values"]
    assert (len(values), values[-1]) == (1000, 1499.0)


def test_the_message_hub_repair_is_still_needed(hub):
    state = ORIGINALS["MessageHub.state_dict"](hub)
    assert_still_broken(lambda: safe_round_trip(state), pickle.UnpicklingError)


def test_plain_forms():
    assert plain(np.float32(0.5)) == 0.5
    assert type(plain(np.float64(0.5))) is float
    assert plain({"a": (1, object(), [np.int64(2)])}) == {"a": (1, [2])}
    assert plain(object()) is OPAQUE


def model_and_optimizer():
    torch.manual_seed(0)
    model = torch.nn.Linear(4, 2)
    return model, torch.optim.SGD(model.parameters(), lr=0.1)


@pytest.mark.parametrize("name, scaled", [("float16", True), ("bfloat16", False)])
def test_half_precision_trains_on_a_cpu(on_cpu, name, scaled):
    model, optimizer = model_and_optimizer()
    before = model.weight.detach().clone()
    wrapper = AmpOptimWrapper(optimizer=optimizer, dtype=name, clip_grad={"max_norm": 1.0})
    assert wrapper.loss_scaler.is_enabled() is scaled
    with wrapper.optim_context(model):
        out = model(torch.ones(3, 4))
    assert out.dtype == getattr(torch, name)
    wrapper.update_params(out.float().square().mean())
    assert not torch.equal(before, model.weight)
    assert torch.isfinite(model.weight).all()
    fresh = AmpOptimWrapper(optimizer=optimizer, dtype=name)
    fresh.load_state_dict(wrapper.state_dict())


def test_a_wrong_amp_option_is_named(on_cpu):
    _, optimizer = model_and_optimizer()
    with pytest.raises(TypeError, match="loss_scale"):
        AmpOptimWrapper(optimizer=optimizer, loss_scale="auto")
    with pytest.raises(TypeError, match="bfloat16"):
        AmpOptimWrapper(optimizer=optimizer, dtype="bf16")


def test_the_autocast_repair_is_still_needed(on_cpu):
    original = ORIGINALS["mmengine.runner.amp.autocast"]
    assert_still_broken(original(dtype=torch.float16).__enter__, AssertionError)


@pytest.mark.skipif(torch.cuda.is_available(), reason="the fault shows without an accelerator")
def test_the_amp_optim_wrapper_repair_is_still_needed(on_cpu, monkeypatch):
    _, optimizer = model_and_optimizer()
    monkeypatch.setattr(AmpOptimWrapper, "__init__", ORIGINALS["AmpOptimWrapper.__init__"])
    assert_still_broken(lambda: AmpOptimWrapper(optimizer=optimizer), AssertionError)


@pytest.fixture
def one_process(monkeypatch, tmp_path):
    for name, value in {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1"}.items():
        monkeypatch.setenv(name, value)
    yield {"init_method": f"file://{tmp_path / 'rendezvous'}"}
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()


def test_a_process_group_starts_on_a_cpu(on_cpu, one_process):
    dist_utils.init_dist("pytorch", backend="nccl", **one_process)
    assert torch.distributed.get_backend() == "gloo"


@pytest.mark.skipif(torch.cuda.is_available(), reason="the fault shows without an accelerator")
def test_the_process_group_repair_is_still_needed(on_cpu, one_process):
    original = ORIGINALS["mmengine.dist.utils._init_dist_pytorch"]
    assert_still_broken(lambda: original("gloo", **one_process), AssertionError, RuntimeError)


def test_versions_give_advice_and_never_stop(monkeypatch):
    have = {"torch": "2.14.1+cpu", "torchvision": "0.29.9", "timm": "1.1.0", "numpy": "1.20"}
    monkeypatch.setattr(versions, "installed", have.get)
    assert versions.advice() == [
        "timm 1.1.0 is newer than 1.0.31, the newest that was tested",
        "mmengine is not installed; mmengine 0.10.7 was tested",
        "numpy 1.20 is older than 1.26, the oldest supported; numpy 2.4.6 was tested",
    ]


@pytest.mark.parametrize("file, category, start", runtime.DEPRECATIONS)
def test_silenced_warnings_are_still_given(file, category, start):
    package, _, rest = file.partition("/")
    found = importlib.util.find_spec(package)
    if found is None:
        pytest.skip(f"{package} is not installed")
    assert start in (Path(found.origin).parent / rest).read_text(encoding="utf-8")
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        runtime.silence_deprecations()
        warnings.warn(f"{start}, and so on", category, stacklevel=1)
        warnings.warn("another", category, stacklevel=1)
    assert [str(one.message) for one in told] == ["another"]
