"""Whole models against recorded runs: converted weights, logits, input and weight gradients."""

from __future__ import annotations

import json

import pytest
import torch
import torch.nn.functional as F
from reference_runs import Run, relative_error, run_backward

from polaformer.backbones import PolaPVT, PolaSwin
from polaformer.checkpoint.convert import detect
from polaformer.ops.flops import count_macs

MODELS = ("pola_swin_tiny64", "pola_swin_shift56", "pola_pvt_tiny64", "pola_pvt_mixed64")

# Parameters in millions and multiply-adds in G at the stated size, measured on the released code.
# A released PVT counts a final norm that it never uses (1,024 parameters); ours has none.
PUBLISHED = [
    ("pola_swin_t", PolaSwin, "tiny", 224, 29.286, 4.659),
    ("pola_swin_s", PolaSwin, "small", 224, 50.604, 8.910),
    ("pola_swin_b", PolaSwin, "base", 224, 89.138, 15.708),
    ("pola_swin_b_384", PolaSwin, "base", 384, 91.599, 47.224),
    ("pola_pvt_t", PolaPVT, "tiny", 224, 12.925, 2.257),
    ("pola_pvt_s", PolaPVT, "small", 224, 23.157, 4.469),
    ("pola_pvt_m", PolaPVT, "medium", 224, 39.966, 7.815),
    ("pola_pvt_l", PolaPVT, "large", 224, 54.367, 11.517),
]


def build(config):
    """Our backbone with the recorded hyper-parameters."""
    if config["kind"] == "pola_swin":
        fields = ("embed_dim", "depths", "num_heads", "mlp_ratio")
        return PolaSwin(
            {field: config[field] for field in fields},
            config["attn_type"],
            img_size=config["img_size"],
            patch_size=config["patch_size"],
        )
    fields = ("embed_dims", "depths", "num_heads", "mlp_ratios")
    linear = {"type": "pola", "value_upsample": "tokens"}
    return PolaPVT(
        {field: config[field] for field in fields},
        [linear if letter == "L" else "softmax" for letter in config["attn_type"]],
        img_size=config["img_size"],
        patch_size=config["patch_size"],
        sr_ratios=config["sr_ratios"],
        linear_sr_ratios=[int(r) for r in config["la_sr_ratios"]],
    )


@pytest.mark.parametrize("name", MODELS)
def test_model(golden_dir, name):
    run = Run(golden_dir / f"model_{name}.safetensors")
    state = detect(run.state).to_ours(run.state)
    weight, bias = (state.pop(f"head.fc.{part}") for part in ("weight", "bias"))
    model = build(run.config)
    model.load_state_dict({k.removeprefix("backbone."): v for k, v in state.items()}, strict=True)
    official = run.group("grad.param.")
    unrecorded = float("nan")
    padded = {
        key: official.get(key, torch.full_like(value, unrecorded))
        for key, value in run.state.items()
        if value.is_floating_point()
    }
    expected = detect(padded).to_ours(padded)
    for dtype, atol, rtol in ((torch.float64, 1e-10, 1e-6), (torch.float32, 1e-5, 1e-4)):

        def logits(images, dtype=dtype):
            return F.linear(model(images)[-1].mean((2, 3)), weight.to(dtype), bias.to(dtype))

        output, grad = run_backward(model, logits, run, dtype)
        assert (output.double() - run.tensors["output64.0"].double()).abs().max() < atol
        assert relative_error(grad, run.tensors["grad.input.x"]) < rtol
        compared = 0
        for key, parameter in model.named_parameters():
            theirs = expected[f"backbone.{key}"]
            if torch.isfinite(theirs).all():
                assert relative_error(parameter.grad, theirs) < rtol, key
                compared += 1
        assert compared >= 3


@pytest.mark.parametrize("name, cls, arch, size, params, macs", PUBLISHED)
def test_size_equals_the_released_model(golden_dir, name, cls, arch, size, params, macs):
    keys = json.loads((golden_dir / "keys" / f"{name}.json").read_text())
    with torch.device("meta"):
        model = cls(arch, img_size=size)
    width = model.channels[-1]
    unused = 2 * width if cls is PolaPVT else 0
    count = sum(p.numel() for p in model.parameters()) + unused + 1000 * width + 1000
    assert count == keys["n_params"]
    assert round(count / 1e6, 3) == params
    total = count_macs(model, torch.zeros(1, 3, size, size, device="meta")) + 1000 * width
    assert round(total / 1e9, 3) == macs
