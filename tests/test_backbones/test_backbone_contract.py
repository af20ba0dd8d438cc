"""Every backbone keeps its promises: any image size, declared maps, freezing, depth, compile."""

from __future__ import annotations

import copy
import math

import pytest
import torch

from polaformer.backbones import PolaPVT, PolaSwin, TimmBackbone, build_backbone, list_backbones
from polaformer.errors import UserError

ALL = (0, 1, 2, 3)
SIZES = [(224, 224), (96, 160), (75, 111), (9, 20), (32, 32)]


def build(kind, **arguments):
    torch.manual_seed(0)
    if kind == "timm":
        return TimmBackbone("pvt_v2_b0", **arguments)
    return build_backbone(kind, arch="nano", **arguments)


def scrambled(model):
    """Give zero-initialised tables, powers and scales a value, so that a wrong use shows."""
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=generator) * 0.05)
    return model


VARIANTS = [
    ("PolaSwin", {}),
    ("PolaSwin", {"attention": "softmax"}),
    ("PolaSwin", {"attention": "pola", "window_size": 5}),
    ("PolaPVT", {"out_norm": True}),
    ("PolaPVT", {"attention": "softmax"}),
    ("PolaPVT", {"attention": "pola*2+softmax", "linear_sr_ratios": (4, 2, 1, 1)}),
    ("timm", {}),
]


def test_the_registry_knows_the_families():
    assert list_backbones() == ["PolaPVT", "PolaSwin", "TimmBackbone"]


@pytest.mark.parametrize("kind, extra", VARIANTS)
def test_any_size_declared_maps_and_no_memory(kind, extra):
    model = scrambled(build(kind, out_indices=ALL, **extra)).eval()
    native = torch.randn(2, 3, *SIZES[0])
    with torch.no_grad():
        before = model(native)
        for hw in SIZES:
            images = torch.randn(2, 3, *hw)
            maps = model(images)
            assert len(maps) == len(model.channels) == len(model.strides) == 4
            for out, channels, stride in zip(maps, model.channels, model.strides, strict=True):
                expected = (2, channels, math.ceil(hw[0] / stride), math.ceil(hw[1] / stride))
                assert tuple(out.shape) == expected
            singles = [model(images[i : i + 1]) for i in range(2)]
            for out, parts in zip(maps, zip(*singles, strict=True), strict=True):
                assert (out - torch.cat(parts)).abs().max() < 1e-5 * max(1, out.abs().max())
        for a, b in zip(before, model(native), strict=True):
            assert torch.equal(a, b)


@pytest.mark.parametrize("kind, extra", VARIANTS)
def test_every_parameter_gets_a_gradient(kind, extra):
    """So that distributed training needs no search for unused parameters."""
    model = build(kind, out_indices=(1, 2) if kind != "timm" else ALL, **extra).train()
    sum(out.square().mean() for out in model(torch.randn(2, 3, 64, 96))).backward()
    missing = [name for name, p in model.named_parameters() if p.grad is None]
    assert missing == []
    assert all(torch.isfinite(p.grad).all() for p in model.parameters())


@pytest.mark.parametrize("kind", ["PolaSwin", "PolaPVT"])
def test_later_stages_are_not_built(kind):
    assert len(build(kind, out_indices=(0, 2)).stages) == 3


@pytest.mark.parametrize("kind", ["PolaSwin", "PolaPVT"])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_autocast_stays_finite(kind, dtype):
    model = build(kind).train()
    with torch.autocast("cpu", dtype):
        loss = model(torch.randn(2, 3, 75, 64) * 4)[0].float().square().mean()
    loss.backward()
    assert torch.isfinite(loss)
    assert all(torch.isfinite(p.grad).all() for p in model.parameters())


@pytest.mark.parametrize("kind", ["PolaSwin", "PolaPVT"])
def test_checkpointing_changes_memory_not_results(kind):
    plain, saving = (build(kind, with_cp=flag).train() for flag in (False, True))
    saving.load_state_dict(plain.state_dict())
    images = torch.randn(1, 3, 64, 64)
    for model in (plain, saving):
        model(images)[0].square().sum().backward()
    for a, b in zip(plain.parameters(), saving.parameters(), strict=True):
        assert torch.allclose(a.grad, b.grad, atol=1e-6)


@pytest.mark.parametrize("kind", ["PolaSwin", "PolaPVT"])
def test_frozen_stages_hold_still(kind):
    model = build(kind, frozen_stages=2, drop_path_rate=0.5)
    model.train()
    model(torch.randn(1, 3, 64, 64))[0].sum().backward()
    moving = {name.split(".")[1] for name, p in model.named_parameters() if p.grad is not None}
    assert moving == {"2", "3"} | ({"3"} if kind == "PolaSwin" else set())
    assert not model.stages[1].training
    assert model.stages[2].training


@pytest.mark.parametrize("kind", ["PolaSwin", "PolaPVT"])
def test_layer_depth_rises_from_stem_to_end(kind):
    model = build(kind, out_indices=ALL, out_norm=True)
    depths = {}
    for name, _ in model.named_parameters():
        depth, total = model.get_layer_depth(f"backbone.{name}", prefix="backbone.")
        assert total == sum(model.depths) + 2
        depths[name] = depth
    assert depths["stages.0.blocks.0.norm1.weight"] == 1
    assert depths["stages.3.blocks.0.norm1.weight"] == sum(model.depths)
    assert depths["norms.3.weight"] == sum(model.depths) + 1
    stem = "patch_embed.proj.weight" if kind == "PolaSwin" else "stages.0.patch_embed.proj.weight"
    assert depths[stem] == 0
    assert set(depths.values()) == set(range(sum(model.depths) + 2))


@pytest.mark.parametrize("kind", ["PolaSwin", "PolaPVT"])
def test_no_decay_names_exist(kind):
    model = build(kind, attention="LLSS")
    names = [name for name, _ in model.named_parameters()]
    unused = {"absolute_pos_embed"} | (
        {"pos_embed"} if kind == "PolaSwin" else {"relative_position_bias_table"}
    )
    for keyword in model.usual_no_decay_keywords() - unused:
        assert any(keyword in name for name in names), keyword


@pytest.mark.parametrize(
    "kind, extra", [("PolaSwin", {}), ("PolaSwin", {"window_size": 5}), ("PolaPVT", {})]
)
def test_compiles_as_one_graph(kind, extra):
    model = build(kind, out_indices=ALL, **extra).eval()
    compiled = torch.compile(model, fullgraph=True, backend="eager", dynamic=False)
    images = torch.randn(1, 3, 75, 111)
    with torch.no_grad():
        for a, b in zip(compiled(images), model(images), strict=True):
            assert torch.allclose(a, b, atol=1e-4)


TWO_STAGES = {
    "PolaSwin": dict(embed_dim=8, depths=(1, 1), num_heads=(1, 1)),
    "PolaPVT": dict(embed_dims=(8, 8), depths=(1, 1), num_heads=(1, 1), mlp_ratios=(2, 2)),
}


@pytest.mark.parametrize("kind", ["PolaSwin", "PolaPVT"])
def test_compiled_once_it_takes_other_sizes(kind):
    """The second size makes torch trace height and width as symbols."""
    attention, extra = "pola", {}
    if kind == "PolaPVT":
        attention = ["pola", "softmax"]
        extra = {"sr_ratios": (2, 1), "linear_sr_ratios": (1, 1)}
    model = build_backbone(
        kind, arch=TWO_STAGES[kind], attention=attention, out_indices=(0, 1), **extra
    ).eval()
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    with torch.no_grad():
        for hw in ((64, 64), (75, 111)):
            images = torch.randn(1, 3, *hw)
            for a, b in zip(compiled(images), model(images), strict=True):
                assert torch.allclose(a, b, atol=1e-4)


@pytest.mark.parametrize("kind", ["PolaSwin", "PolaPVT"])
def test_compiles_for_training(kind):
    model = build(kind, drop_path_rate=0.1).train()
    compiled = torch.compile(model, fullgraph=True, backend="eager", dynamic=False)
    compiled(torch.randn(2, 3, 64, 64))[0].square().mean().backward()
    assert all(torch.isfinite(p.grad).all() for p in model.parameters())


@pytest.mark.parametrize("kind", ["PolaSwin", "PolaPVT"])
def test_initial_weights_follow_the_published_ones(kind):
    """Linear: truncated normal .02, bias 0; power, scale, encodings 0; convs as torch does."""
    model = build(kind, attention="LLSS")
    for name, parameter in model.named_parameters():
        if name.endswith(("qgkv.weight", "qkv.weight", "fc1.weight", "fc2.weight")):
            assert abs(float(parameter.detach().std()) - 0.02) < 1.5e-3, name
        elif name.endswith(("power", "scale", "positional_encoding")):
            assert parameter.abs().max() == 0, name
        elif name.endswith("dwc.weight"):
            assert abs(float(parameter.detach().std()) - 0.2 / math.sqrt(3)) < 0.02, name
        elif ".norm" in name or name.startswith("norm"):
            assert (parameter == (1 if name.endswith("weight") else 0)).all(), name
        elif name.endswith(("qgkv.bias", "qkv.bias", "fc1.bias", "fc2.bias", "attn.proj.bias")):
            assert parameter.abs().max() == 0, name
    tables = [p for n, p in model.named_parameters() if n.endswith(("pos_embed", "bias_table"))]
    assert tables
    assert all(abs(float(t.detach().std()) - 0.02) < 5e-3 for t in tables if t.numel() > 200)


def test_exponent_starts_at_one_plus_half_alpha():
    attn = PolaSwin("nano").stages[0].blocks[0].attn
    assert torch.equal(attn.exponent(), torch.full((1, 1, 1, 32), 3.0))


@pytest.mark.parametrize("kind", ["PolaSwin", "PolaPVT"])
def test_linear_stages_are_global_at_every_size(kind):
    """One pixel of the first corner reaches the last token of stage 1 at a size never built for."""
    model = build(kind, attention="pola", out_indices=(0,)).double()
    images = torch.randn(1, 3, 80, 48, dtype=torch.float64, requires_grad=True)
    model(images)[0][0, :, -1, -1].pow(3).sum().backward()
    assert images.grad[0, :, 0, 0].abs().max() > 0


def test_windows_of_the_released_models():
    swin = PolaSwin(dict(embed_dim=8, num_heads=(1, 1, 1, 1)), img_size=384)
    assert swin.stages[2].blocks[0].attn.window_size == (12, 12)
    assert swin.stages[2].blocks[0].attn.attn.relative_position_bias_table.shape == (23 * 23, 1)
    assert PolaSwin("nano").stages[3].blocks[0].attn.attn.window_size == (7, 7)


@pytest.mark.parametrize("kind", ["PolaSwin", "PolaPVT"])
def test_deepcopy_gives_an_independent_model(kind):
    model = build(kind).eval()
    images = torch.randn(1, 3, 40, 40)
    with torch.no_grad():
        out = model(images)[0]
        twin = copy.deepcopy(model)
        for parameter in twin.parameters():
            parameter.zero_()
        assert torch.equal(model(images)[0], out)


@pytest.mark.parametrize(
    "arguments, words",
    [
        ({"arch": "tinny"}, ["tinny", "did you mean 'tiny'?", "base"]),
        ({"arch": {"embed_dims": 3}}, ["embed_dims", "did you mean 'embed_dim'?"]),
        ({"arch": 3}, ["arch=3"]),
        ({"arch": "nano", "out_indices": (4,)}, ["out_indices=(4,)", "0 to 3"]),
        ({"arch": "nano", "out_indices": ()}, ["out_indices=()"]),
        ({"arch": "nano", "out_indices": (2, 1)}, ["in order"]),
        ({"arch": "nano", "frozen_stages": 9}, ["frozen_stages=9"]),
        ({"arch": "nano", "img_size": "224"}, ["img_size='224'"]),
        ({"arch": "nano", "img_size": (224, 0)}, ["img_size=(224, 0)"]),
        ({"arch": "nano", "window_size": -7}, ["window_size=-7"]),
        ({"arch": "nano", "attention": "LLS"}, ["3 letters"]),
        ({"arch": {"num_heads": (3, 3, 3, 3)}}, ["num_heads=3", "dim=32"]),
        ({"arch": {"depths": (1, 1)}}, ["depths (2)", "num_heads (4)"]),
    ],
)
def test_mistakes_are_named(arguments, words):
    with pytest.raises(UserError) as error:
        PolaSwin(**arguments)
    for word in words:
        assert word in str(error.value)


def test_pvt_ratio_mistakes_are_named():
    with pytest.raises(UserError, match="sr_ratios"):
        PolaPVT("nano", sr_ratios=(8, 4, 2))


def test_unknown_timm_model_names_the_nearest():
    with pytest.raises(UserError, match="did you mean 'pvt_v2_b0'"):
        TimmBackbone("pvt_v2_b00")


def test_timm_backbone_that_has_no_features_is_refused_clearly():
    with pytest.raises(UserError, match="frozen_stages"):
        TimmBackbone("pvt_v2_b0", frozen_stages=1)


def test_timm_channels_last_models_come_out_channels_first():
    model = TimmBackbone("swin_tiny_patch4_window7_224", out_indices=(0, 3), img_size=64)
    maps = model(torch.randn(1, 3, 64, 64))
    assert [tuple(m.shape) for m in maps] == [(1, 96, 16, 16), (1, 768, 2, 2)]
    assert model.channels == (96, 768)


def test_timm_models_keep_their_own_exemptions():
    model = TimmBackbone("swin_tiny_patch4_window7_224", img_size=64)
    assert model.no_weight_decay_keywords() == {"relative_position_bias_table"}
    names = [name for name, _ in model.named_parameters()]
    assert any(name.endswith(".relative_position_bias_table") for name in names)


def test_timm_models_of_one_size_name_it():
    model = TimmBackbone("vit_tiny_patch16_224", img_size=64)
    with pytest.raises(UserError, match=r"no images of 65 x 97 when built for 64 x 64.*img_size"):
        model(torch.randn(1, 3, 65, 97))
    free = TimmBackbone("vit_tiny_patch16_224", img_size=64, timm_args={"dynamic_img_size": True})
    assert free(torch.randn(1, 3, 65, 97))[0].shape == (1, 192, 5, 7)


def test_timm_models_that_are_no_backbones_are_refused_when_built():
    with pytest.raises(UserError, match="crossvit_tiny_240"):
        TimmBackbone("crossvit_tiny_240")


@pytest.mark.parametrize("kind", ["PolaSwin", "PolaPVT"])
@pytest.mark.parametrize(
    "extra, words",
    [
        ({"drop_path_rate": 1.5}, "drop_path_rate=1.5; allowed: 0 <= value < 1"),
        ({"drop_rate": -0.1}, "drop_rate=-0.1"),
        ({"patch_size": 0}, "patch_size=0"),
        ({"img_size": True}, "img_size=True"),
        ({"attention": {"type": "pola", "alpha": "x"}}, "alpha='x'"),
    ],
)
def test_values_out_of_range_are_named(kind, extra, words):
    with pytest.raises(UserError, match=words):
        build_backbone(kind, arch="nano", **extra)


def test_a_softmax_window_of_zero_is_no_default():
    with pytest.raises(UserError, match="softmax_window_size=0"):
        PolaSwin("nano", softmax_window_size=0)
