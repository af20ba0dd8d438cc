"""Published formats to ours and back: names, shapes, row orders, and equal outputs."""

from __future__ import annotations

import json
import re
from math import prod

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file

from polaformer.checkpoint import (
    CheckpointError,
    convert_file,
    detect,
    load_weights,
    read_checkpoint,
    write_checkpoint,
)
from polaformer.checkpoint.convert import CONVERTERS, detect_ours

SWIN = ["pola_swin_t", "pola_swin_s", "pola_swin_b", "pola_swin_b_384"]
PVT = ["pola_pvt_t", "pola_pvt_s", "pola_pvt_m", "pola_pvt_l"]
DERIVED = ("relative_position_index", "attn_mask")


def official_state(golden_dir, variant: str, device: str = "meta") -> dict[str, torch.Tensor]:
    """Tensors of the published names and shapes; without memory, unless told otherwise."""
    info = json.loads((golden_dir / "keys" / f"{variant}.json").read_text())
    dtypes = {key: getattr(torch, name.split(".")[1]) for key, name in info["dtypes"].items()}
    return {
        key: torch.empty(shape, dtype=dtypes.get(key, torch.float32), device=device)
        for key, shape in info["keys"].items()
    }


def golden_state(golden_dir, name: str) -> tuple[dict[str, torch.Tensor], dict, dict]:
    path = golden_dir / f"{name}.safetensors"
    tensors = load_file(path)
    with safe_open(path, "pt") as file:
        config = json.loads(file.metadata()["config"])
    state = {k.removeprefix("state."): v for k, v in tensors.items() if k.startswith("state.")}
    return state, tensors, config


@pytest.mark.parametrize("variant", SWIN + PVT)
def test_every_published_name_goes_there_and_back(golden_dir, variant):
    """Our names have the same number of parameters; the way back gives every name and shape."""
    official = official_state(golden_dir, variant)
    real = {k: v for k, v in official.items() if not k.endswith(DERIVED)}
    converter = detect(official)
    assert converter is CONVERTERS["pola-swin" if "swin" in variant else "pola-pvt"]
    ours = converter.to_ours(official)
    assert all(key.startswith(("backbone.", "head.fc.")) for key in ours)
    unused = {k for k in real if "pvt" in variant and k.startswith("norm.")}
    count = sum(prod(v.shape) for k, v in real.items() if k not in unused)
    assert sum(prod(value.shape) for value in ours.values()) == count
    assert detect(ours) is None
    assert detect_ours(ours) is converter
    back = converter.to_official(ours)
    assert {k: tuple(v.shape) for k, v in back.items()} == {
        k: tuple(v.shape) for k, v in official.items()
    }
    assert {k: v.dtype for k, v in back.items()} == {k: v.dtype for k, v in official.items()}


@pytest.mark.parametrize(
    "variant", ["model_pola_swin_tiny64", "model_pola_pvt_tiny64", "model_pola_pvt_mixed64"]
)
def test_values_survive_both_ways(golden_dir, variant):
    state, _, _ = golden_state(golden_dir, variant)
    converter = detect(state)
    back = converter.to_official(converter.to_ours(state))
    assert back.keys() == state.keys()
    for key, value in state.items():
        if not ("pvt" in variant and key.startswith("norm.")):
            assert torch.equal(back[key], value), key
    if "pvt" in variant:
        assert back["norm.weight"].unique().tolist() == [1.0]
        assert back["norm.bias"].unique().tolist() == [0.0]


def test_index_and_mask_are_rebuilt_as_published(golden_dir):
    """Stages S L S S at 56 pixels: a 14 x 14 grid with shifted windows of 7 in stage 3.

    The first stage is softmax, so its grid is known from the second.
    """
    state, _, _ = golden_state(golden_dir, "model_pola_swin_shift56")
    converter = detect(state)
    back = converter.to_official(converter.to_ours(state))
    assert back.keys() == state.keys()
    assert sum(key.endswith("attn_mask") for key in back) == 1
    assert all(torch.equal(back[key], value) for key, value in state.items())


def test_row_orders():
    """Swin's rows are q, k, v, g and PVT's q, g and k, v where published; ours are q, g, k, v."""
    q, k, v, g = (torch.full((2, 2), float(i)) for i in range(4))
    swin = {
        "patch_embed.proj.weight": torch.zeros(2, 3, 4, 4),
        "layers.0.blocks.0.attn.qkvg.weight": torch.cat([q, k, v, g]),
        "layers.0.downsample.reduction.weight": torch.zeros(4, 8),
    }
    ours = CONVERTERS["pola-swin"].to_ours(swin)
    assert torch.equal(ours["stages.0.blocks.0.attn.qgkv.weight"], torch.cat([q, g, k, v]))
    pvt = {
        "patch_embed1.proj.weight": torch.zeros(2, 3, 4, 4),
        "block1.0.attn.qg.weight": torch.cat([q, g]),
        "block1.0.attn.kv.weight": torch.cat([k, v]),
        "block1.1.attn.q.weight": q,
        "block1.1.attn.kv.weight": torch.cat([k, v]),
        "block1.1.attn.sr.weight": torch.zeros(2, 2, 2, 2),
    }
    ours = CONVERTERS["pola-pvt"].to_ours(pvt)
    assert torch.equal(ours["stages.0.blocks.0.attn.qgkv.weight"], torch.cat([q, g, k, v]))
    assert torch.equal(ours["stages.0.blocks.1.attn.attn.qkv.weight"], torch.cat([q, k, v]))
    assert "stages.0.blocks.1.attn.sr.weight" in ours


@pytest.mark.parametrize(
    "variant", ["flatten_swin_t", "flatten_pvt_t", "flatten_pvt_v2_b1", "polapp_b1", "nala_t"]
)
def test_relatives_are_not_taken_for_ours(golden_dir, variant):
    assert detect(official_state(golden_dir, variant)) is None


def test_prefixes_do_not_hide_a_format(golden_dir):
    state = official_state(golden_dir, "pola_swin_t")
    wrapped = {f"module.model.{key}": value for key, value in state.items()}
    assert detect(wrapped) is CONVERTERS["pola-swin"]
    ours = CONVERTERS["pola-swin"].to_ours(wrapped)
    assert ours.keys() == CONVERTERS["pola-swin"].to_ours(state).keys()


def test_a_headless_state_becomes_a_bare_backbone(golden_dir):
    state = official_state(golden_dir, "pola_pvt_t")
    bare = {key: value for key, value in state.items() if not key.startswith("head.")}
    ours = CONVERTERS["pola-pvt"].to_ours(bare)
    assert "stages.0.pos_embed" in ours
    assert not any(key.startswith(("head", "backbone.")) for key in ours)
    assert CONVERTERS["pola-pvt"].to_official(ours).keys() == bare.keys()


def test_the_wrong_converter_says_so(golden_dir):
    with pytest.raises(CheckpointError, match="not in the format pola-pvt"):
        CONVERTERS["pola-pvt"].to_ours(official_state(golden_dir, "pola_swin_t"))


def build_swin(config: dict, **extra):
    """Our model of the shape that a reference run's config describes."""
    from polaformer.backbones import PolaSwin

    arch = dict(
        embed_dim=config["embed_dim"],
        depths=config["depths"],
        num_heads=config["num_heads"],
        mlp_ratio=config.get("mlp_ratio", 4.0),
    )
    return PolaSwin(
        arch=arch,
        attention=config["attn_type"],
        img_size=config["img_size"],
        patch_size=config["patch_size"],
        drop_path_rate=0.0,
        **extra,
    ).eval()


def build_pvt(config: dict):
    from polaformer.backbones import PolaPVT

    ratios = [int(ratio) for ratio in config["la_sr_ratios"]]
    arch = dict(
        embed_dims=config["embed_dims"],
        depths=config["depths"],
        num_heads=config["num_heads"],
        mlp_ratios=config["mlp_ratios"],
    )
    linear = dict(type="pola", value_upsample="tokens")
    attention = [linear if letter == "L" else "softmax" for letter in config["attn_type"]]
    return PolaPVT(
        arch=arch,
        attention=attention,
        img_size=config["img_size"],
        sr_ratios=config["sr_ratios"],
        linear_sr_ratios=ratios,
        drop_path_rate=0.0,
    ).eval()


MODELS = [
    ("model_pola_swin_tiny64", build_swin),
    ("model_pola_swin_shift56", build_swin),
    ("model_pola_pvt_tiny64", build_pvt),
    ("model_pola_pvt_mixed64", build_pvt),
]


@pytest.mark.parametrize("name, build", MODELS, ids=[name for name, _ in MODELS])
def test_an_official_file_gives_the_reference_outputs(golden_dir, tmp_path, name, build):
    """All tensors load into our backbone; mean features times the file's head are its logits."""
    state, tensors, config = golden_state(golden_dir, name)
    torch.save({"model": state, "epoch": 299}, tmp_path / "official.pth")
    backbone = build(config)
    report = load_weights(backbone, tmp_path / "official.pth", min_match=1.0)
    assert report.loaded == report.total == len(backbone.state_dict())
    assert report.missing == []
    assert report.ignored == ["head.fc.bias", "head.fc.weight"]
    assert report.converter in ("pola-swin", "pola-pvt")
    with torch.no_grad():
        features = backbone(tensors["input.x"])[-1].mean((2, 3))
    logits = features @ state["head.weight"].T + state["head.bias"]
    torch.testing.assert_close(logits.double(), tensors["output64.0"], atol=1e-5, rtol=1e-5)


def test_a_classifier_for_dense_tasks_gets_all_but_its_new_norms(golden_dir):
    """Output norms of the first three stages are in no classifier; they do not count as missing."""
    state, _, config = golden_state(golden_dir, "model_pola_swin_tiny64")
    backbone = build_swin(config, out_indices=(0, 1, 2, 3))
    report = load_weights(backbone, state, min_match=1.0)
    new = {f"norms.{i}.{part}" for i in range(3) for part in ("weight", "bias")}
    assert set(report.missing) == new
    assert report.loaded == report.total == len(backbone.state_dict()) - len(new)


def test_another_image_size_resizes_the_tables(golden_dir):
    state, _, config = golden_state(golden_dir, "model_pola_swin_tiny64")
    backbone = build_swin({**config, "img_size": 96})
    report = load_weights(backbone, state)
    assert report.loaded == report.total
    tables = [key for key in backbone.state_dict() if key.endswith("positional_encoding")]
    assert set(tables) <= set(report.resized)
    assert tables


def test_windowed_linear_blocks_take_the_same_file(golden_dir):
    state, _, config = golden_state(golden_dir, "model_pola_swin_tiny64")
    backbone = build_swin(config, window_size=4)
    assert any(".attn.attn.qgkv." in key for key in backbone.state_dict())
    report = load_weights(backbone, state)
    assert report.loaded == report.total


def test_timm_swin_gives_timms_logits(tmp_path):
    """Random weights in timm's own model, converted into ours: logits agree to 1e-4."""
    timm = pytest.importorskip("timm")
    torch.manual_seed(0)
    size = dict(img_size=56, embed_dim=16, depths=(1, 1, 2, 1), num_heads=(1, 2, 4, 8))
    theirs = timm.create_model(
        "swin_tiny_patch4_window7_224", num_classes=5, patch_size=1, **size
    ).eval()
    for value in theirs.parameters():
        torch.nn.init.normal_(value, std=0.2)
    torch.save(theirs.state_dict(), tmp_path / "timm.pth")
    ours = build_swin({**size, "patch_size": 1, "attn_type": "SSSS"})
    report = load_weights(ours, tmp_path / "timm.pth", min_match=1.0)
    assert report.converter == "timm-swin"
    assert report.loaded == report.total == len(ours.state_dict())
    assert report.ignored == ["head.fc.bias", "head.fc.weight"]
    images = torch.randn(2, 3, 56, 56)
    with torch.no_grad():
        logits = theirs.head.fc(ours(images)[-1].mean((2, 3)))
        expected = theirs(images)
    assert expected.abs().max() > 0.1
    torch.testing.assert_close(logits, expected, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("model", ["swin_tiny_patch4_window7_224", "swin_base_patch4_window12_384"])
def test_timm_names_go_there_and_back(model):
    timm = pytest.importorskip("timm")
    with torch.device("meta"):
        state = timm.create_model(model).state_dict()
    converter = detect(state)
    assert converter is CONVERTERS["timm-swin"]
    ours = converter.to_ours(state)
    assert all(key.startswith(("backbone.", "head.fc.")) for key in ours)
    back = converter.to_official(ours)
    assert {k: v.shape for k, v in back.items()} == {k: v.shape for k, v in state.items()}


def test_timms_other_swins_are_not_taken_for_it():
    timm = pytest.importorskip("timm")
    with torch.device("meta"):
        assert detect(timm.create_model("swinv2_tiny_window8_256").state_dict()) is None


def test_files_are_converted_both_ways(golden_dir, tmp_path):
    state, _, _ = golden_state(golden_dir, "model_pola_pvt_tiny64")
    torch.save({"model": state}, tmp_path / "official.pth")
    assert convert_file(tmp_path / "official.pth", tmp_path / "ours.safetensors") == "pola-pvt"
    assert "backbone.stages.0.pos_embed" in read_checkpoint(tmp_path / "ours.safetensors")
    convert_file(tmp_path / "ours.safetensors", tmp_path / "back.pth", to="official")
    back = read_checkpoint(tmp_path / "back.pth")["state_dict"]
    assert back.keys() == state.keys()
    assert torch.equal(back["block1.0.attn.qg.weight"], state["block1.0.attn.qg.weight"])
    with pytest.raises(CheckpointError, match="allowed: 'ours', 'official'"):
        convert_file(tmp_path / "official.pth", tmp_path / "x.pth", to="theirs")
    write_checkpoint({"state_dict": {"a.b": torch.zeros(1)}}, tmp_path / "foreign.pth")
    with pytest.raises(CheckpointError, match="no format that can be converted"):
        convert_file(tmp_path / "foreign.pth", tmp_path / "x.pth")


def test_every_converter_is_documented_by_its_name():
    assert sorted(CONVERTERS) == ["pola-pvt", "pola-swin", "timm-swin"]
    assert all(re.fullmatch(r"[a-z-]+", name) for name in CONVERTERS)


ARCHS = [
    ("pola_swin_t", "PolaSwin", dict(arch="tiny")),
    ("pola_swin_s", "PolaSwin", dict(arch="small")),
    ("pola_swin_b", "PolaSwin", dict(arch="base")),
    ("pola_swin_b_384", "PolaSwin", dict(arch="base", img_size=384)),
    ("pola_pvt_t", "PolaPVT", dict(arch="tiny")),
    ("pola_pvt_s", "PolaPVT", dict(arch="small")),
    ("pola_pvt_m", "PolaPVT", dict(arch="medium")),
    ("pola_pvt_l", "PolaPVT", dict(arch="large")),
]


@pytest.mark.parametrize("variant, backbone, options", ARCHS, ids=[name for name, _, _ in ARCHS])
def test_converted_names_are_those_of_our_classifier(golden_dir, variant, backbone, options):
    """Names and shapes agree in both directions for every released model."""
    from polaformer.registry import MODELS

    official = official_state(golden_dir, variant)
    ours = detect(official).to_ours(official)
    with torch.device("meta"):
        model = MODELS.build(dict(type=f"polaformer.{backbone}", **options))
    shapes = {f"backbone.{k}": tuple(v.shape) for k, v in model.state_dict().items()}
    shapes["head.fc.weight"] = (1000, model.channels[-1])
    shapes["head.fc.bias"] = (1000,)
    assert {key: tuple(value.shape) for key, value in ours.items()} == shapes
    back = detect_ours(shapes).to_official(ours)
    assert {k: v.shape for k, v in back.items()} == {k: v.shape for k, v in official.items()}


def test_an_official_file_into_our_classifier(golden_dir):
    """The head comes along; a file of another number of classes says what to do."""
    from polaformer.registry import MODELS

    state, tensors, config = golden_state(golden_dir, "model_pola_swin_tiny64")
    arch = {key: config[key] for key in ("embed_dim", "depths", "num_heads", "mlp_ratio")}
    backbone = dict(type="polaformer.PolaSwin", arch=arch, img_size=64)
    backbone["attention"] = config["attn_type"]

    def build(classes: int):
        head = dict(type="polaformer.LinearHead", num_classes=classes, in_channels=128)
        return MODELS.build(dict(type="polaformer.ImageClassifier", backbone=backbone, head=head))

    model = build(10).eval()
    report = load_weights(model, {"model": state}, min_match=1.0)
    assert report.loaded == report.total == len(model.state_dict())
    assert (report.ignored, report.missing) == ([], [])
    with torch.no_grad():
        logits = model.head(model.backbone(tensors["input.x"]))
    torch.testing.assert_close(logits.double(), tensors["output64.0"], atol=1e-5, rtol=1e-5)
    with pytest.raises(CheckpointError, match="num_classes=10, or accept fresh layers"):
        load_weights(build(3), {"model": state})


def test_timms_own_backbone_takes_timms_names_as_they_are():
    pytest.importorskip("timm")
    from polaformer.backbones import TimmBackbone

    name = "swin_tiny_patch4_window7_224"
    backbone = TimmBackbone(name, img_size=224)
    state = {k.replace("model.", ""): torch.ones_like(v) for k, v in backbone.state_dict().items()}
    report = load_weights(backbone, state, min_match=1.0)
    assert report.converter is None
    assert report.loaded == report.total


def test_no_converter_on_request(golden_dir):
    state, _, config = golden_state(golden_dir, "model_pola_swin_tiny64")
    with pytest.raises(CheckpointError, match=r"4 of 86 .* the file has 'layers\.0"):
        load_weights(build_swin(config), state, converter="none")
