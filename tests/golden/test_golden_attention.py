"""Attention modules against recorded runs of the published ones: outputs and every gradient.

Float64 outputs must agree to 1e-10 absolute, float32 ones to 1e-5; gradients to 1e-6 and 1e-4
relative (the recorded gradients are stored in float32).
"""

from __future__ import annotations

import pytest
import torch
from reference_runs import Run, relative_error, run_backward

from polaformer.attention import PolaAttention, ReducedAttention, SoftmaxAttention, reduced_size
from polaformer.ops import Regions

POLA_SWIN = ("w4", "w7", "w8", "zero_qk", "power1")
POLA_PVT = ("sr1_6x10", "sr1_8x8", "sr2_8x12")
SOFTMAX_PVT = ("sr1_6x10", "sr2_8x12")


def pola_from_swin(state):
    """Published rows q, k, v, g become ours: q, g, k, v."""
    ours = {key: value for key, value in state.items() if not key.startswith("qkvg")}
    for part in ("weight", "bias"):
        q, k, v, g = state[f"qkvg.{part}"].chunk(4)
        ours[f"qgkv.{part}"] = torch.cat((q, g, k, v))
    return ours


def pola_from_pvt(state):
    ours = {k: v for k, v in state.items() if k.split(".")[0] not in ("qg", "kv")}
    for part in ("weight", "bias"):
        ours[f"qgkv.{part}"] = torch.cat((state[f"qg.{part}"], state[f"kv.{part}"]))
    return ours


def softmax_from_pvt(state):
    ours = {k: v for k, v in state.items() if k.split(".")[0] not in ("q", "kv")}
    for part in ("weight", "bias"):
        ours[f"qkv.{part}"] = torch.cat((state[f"q.{part}"], state[f"kv.{part}"]))
    return ours


def build(run: Run, cls, **extra):
    """Our module with the recorded state, and the gradients it must show under our names."""
    config = run.config
    ratio = config.get("sr_ratio", 1)
    hw = tuple(config["window"]) if "window" in config else (config["H"], config["W"])
    if cls is PolaAttention:
        extra.update(alpha=config["alpha"], kernel_size=config["kernel_size"])
        if ratio > 1:
            extra["value_upsample"] = "tokens"
        convert = pola_from_swin if "window" in config else pola_from_pvt
    else:
        convert = softmax_from_pvt if "window" not in config else dict
    module = cls(config["dim"], config["num_heads"], reduced_size(hw, ratio), **extra)
    expected = convert(run.group("grad.param."))
    state = convert(run.state)
    state.pop("relative_position_index", None)
    if ratio > 1:
        module = ReducedAttention(module, ratio)
        own = ("sr", "norm")
        rename = {k: k if k.split(".")[0] in own else f"attn.{k}" for k in state}
        state = {rename[k]: v for k, v in state.items()}
        expected = {rename[k]: v for k, v in expected.items()}
    module.load_state_dict(state, strict=True)
    return module, hw, expected


def check(run: Run, module, call, expected) -> None:
    for dtype, atol, rtol in ((torch.float64, 1e-10, 1e-6), (torch.float32, 1e-5, 1e-4)):
        output, grad = run_backward(module, call, run, dtype)
        assert (output.double() - run.tensors["output64.0"].double()).abs().max() < atol
        assert relative_error(grad, run.tensors["grad.input.x"]) < rtol
        parameters = dict(module.named_parameters())
        assert set(parameters) == set(expected)
        for name, theirs in expected.items():
            assert torch.isfinite(parameters[name].grad).all(), name
            scale = max(float(theirs.double().norm()), 1e-3)
            difference = (parameters[name].grad.double() - theirs.double()).norm()
            assert float(difference) / scale < rtol, name


@pytest.mark.parametrize("name", POLA_SWIN)
def test_pola_swin_form(golden_dir, name):
    run = Run(golden_dir / f"attn_pola_swin_{name}.safetensors")
    module, hw, expected = build(run, PolaAttention)
    check(run, module, lambda x: module(x, hw), expected)


@pytest.mark.parametrize("name", POLA_PVT)
def test_pola_pvt_form(golden_dir, name):
    run = Run(golden_dir / f"attn_pola_pvt_{name}.safetensors")
    module, hw, expected = build(run, PolaAttention)
    check(run, module, lambda x: module(x, hw), expected)


@pytest.mark.parametrize("name", SOFTMAX_PVT)
def test_softmax_pvt_form(golden_dir, name):
    run = Run(golden_dir / f"attn_softmax_pvt_{name}.safetensors")
    module, hw, expected = build(run, SoftmaxAttention)
    check(run, module, lambda x: module(x, hw), expected)


def test_softmax_swin_form(golden_dir):
    run = Run(golden_dir / "attn_softmax_swin_w4.safetensors")
    module, hw, expected = build(run, SoftmaxAttention, relative_position_bias=True)
    check(run, module, lambda x: module(x, hw), expected)


def test_softmax_swin_form_masked(golden_dir, monkeypatch):
    """The recorded mask is arbitrary, not made of regions, so the test supplies it directly."""
    run = Run(golden_dir / "attn_softmax_swin_w4_mask.safetensors")
    allowed = run.tensors["input.mask"] == 0
    monkeypatch.setattr("polaformer.ops.softmax.region_mask", lambda regions: allowed[:, None])
    module, hw, expected = build(run, SoftmaxAttention, relative_position_bias=True)
    regions = Regions(torch.zeros(2, 16, dtype=torch.long), 1)
    check(run, module, lambda x: module(x, hw, regions=regions), expected)
