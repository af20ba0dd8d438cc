from __future__ import annotations

import pytest
import torch
from torch import nn

from polaformer.engine.optim_constructor import OptimConstructor
from polaformer.errors import UserError
from polaformer.registry import MODELS

LR, DECAY = 1e-3, 0.05


class StubBackbone(nn.Module):
    """Four layers: stem, two blocks, norm; with the parameter names of PolaFormer's attention."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 4, 4)
        self.blocks = nn.ModuleList([self.block(), self.block()])
        self.norm = nn.GroupNorm(2, 8)

    @staticmethod
    def block() -> nn.ParameterDict:
        shapes = {
            "power": (1, 2, 1, 4),
            "scale": (1, 1, 8),
            "positional_encoding": (1, 16, 8),
            "relative_position_bias_table": (9, 2),
            "weight": (8, 8),
            "bias": (2, 4),
        }
        return nn.ParameterDict({k: nn.Parameter(torch.zeros(v)) for k, v in shapes.items()})

    def get_layer_depth(self, name: str, prefix: str = "") -> tuple[int, int]:
        name = name.removeprefix(prefix)
        if name.startswith("stem"):
            return 0, 4
        return (1 + int(name.split(".")[1]), 4) if name.startswith("blocks") else (3, 4)

    def no_weight_decay_keywords(self) -> set[str]:
        return {"relative_position_bias_table", "absolute_pos_embed"}

    def usual_no_decay_keywords(self) -> set[str]:
        return {"power", "scale", "positional_encoding", "pos_embed"}


class StubModel(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.backbone = StubBackbone()
        self.head = nn.Linear(8, 5)


class Wrapped(nn.Module):
    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module


def constructor(**paramwise) -> OptimConstructor:
    optimizer = {"type": "AdamW", "lr": LR, "weight_decay": DECAY, "betas": (0.9, 0.999)}
    return OptimConstructor({"type": "OptimWrapper", "optimizer": optimizer}, paramwise or None)


def settings(model: nn.Module, **paramwise) -> dict[str, tuple[float, float]]:
    groups = constructor(**paramwise).groups(model)
    return {name: (group.lr, group.weight_decay) for group in groups for name in group.names}


@pytest.mark.parametrize(
    "rule, decayed", [("published", True), ("usual", False)], ids=["published", "usual"]
)
def test_decay_rules(rule, decayed):
    found = settings(StubModel(), decay_rule=rule)
    always = ["backbone.stem.weight", "backbone.blocks.0.weight", "head.weight"]
    never = ["backbone.blocks.0.bias", "backbone.blocks.1.relative_position_bias_table"]
    never += ["backbone.norm.weight", "backbone.stem.bias", "head.bias"]
    contested = [f"backbone.blocks.1.{name}" for name in ("power", "scale", "positional_encoding")]
    assert {found[name][1] for name in always} == {DECAY}
    assert {found[name][1] for name in never} == {0.0}
    assert {found[name][1] for name in contested} == {DECAY if decayed else 0.0}


def test_published_is_the_default_and_needs_two_groups_only():
    assert settings(StubModel()) == settings(StubModel(), decay_rule="published")
    assert len(constructor().groups(StubModel())) == 2


def test_layer_decay():
    found = settings(StubModel(), layer_decay_rate=0.5)
    assert found["head.weight"][0] == found["backbone.norm.weight"][0] == LR
    assert found["backbone.blocks.1.weight"][0] == pytest.approx(LR * 0.5)
    assert found["backbone.blocks.0.weight"][0] == pytest.approx(LR * 0.25)
    assert found["backbone.stem.weight"][0] == pytest.approx(LR * 0.125)


def test_custom_keys_longest_match_wins_and_may_set_the_decay():
    keys = {
        "backbone": {"lr_mult": 0.1},
        "backbone.blocks.*.power": {"lr_mult": 5.0, "decay_mult": 0.0},
        "*.positional_encoding": {"decay_mult": 0.5},
    }
    found = settings(StubModel(), custom_keys=keys)
    assert found["backbone.stem.weight"] == (pytest.approx(LR * 0.1), DECAY)
    assert found["backbone.blocks.0.power"] == (pytest.approx(LR * 5), 0.0)
    assert found["backbone.blocks.0.positional_encoding"] == (LR, pytest.approx(DECAY / 2))
    assert found["head.weight"] == (LR, DECAY)


def test_frozen_parameters_are_left_out():
    model = StubModel()
    model.backbone.stem.requires_grad_(False)
    assert not any("stem" in name for name in settings(model))
    model.requires_grad_(False)
    with pytest.raises(UserError, match="everything is frozen"):
        constructor().groups(model)


def test_a_wrapped_model_gives_the_same_groups_in_the_same_order():
    model = StubModel()
    plain = constructor(layer_decay_rate=0.7).groups(model)
    wrapped = constructor(layer_decay_rate=0.7).groups(Wrapped(model))
    assert [group.names for group in plain] == [group.names for group in wrapped]
    assert sum(len(group.names) for group in plain) == len(list(model.parameters()))


def test_builds_an_optimiser_that_steps_and_resumes():
    model = StubModel()
    wrapper = constructor(layer_decay_rate=0.7)(model)
    assert type(wrapper.optimizer).__name__ == "AdamW"
    before = model.head.weight.detach().clone()
    wrapper.update_params(sum(p.float().sum() for p in model.parameters()))
    assert not torch.equal(before, model.head.weight)
    other = constructor(layer_decay_rate=0.7)(StubModel())
    other.load_state_dict(wrapper.state_dict())
    assert other.optimizer.param_groups[0]["lr"] == wrapper.optimizer.param_groups[0]["lr"]


@pytest.mark.parametrize(
    "paramwise, words",
    [
        ({"layer_decay": 0.7}, "did you mean 'layer_decay_rate'"),
        ({"decay_rule": "publised"}, "did you mean 'published'"),
        ({"layer_decay_rate": 1.5}, "layer_decay_rate is 1.5"),
        ({"custom_keys": {"head": {"lr_mul": 2}}}, "did you mean 'lr_mult'"),
        ({"custom_keys": {"backbone.blocks.*.powr": {"lr_mult": 2}}}, "did you mean 'backbone.bl"),
        ({"custom_keys": {"bakcbone": {"lr_mult": 2}}}, "did you mean 'backbone'"),
    ],
)
def test_mistakes_are_named_with_the_nearest(paramwise, words):
    with pytest.raises(UserError, match=words):
        settings(StubModel(), **paramwise)


def test_layer_decay_needs_a_backbone_that_knows_its_layers():
    with pytest.raises(UserError, match="get_layer_depth; Linear has none"):
        settings(nn.Linear(3, 4), layer_decay_rate=0.7)


def test_a_missing_learning_rate_is_named():
    with pytest.raises(UserError, match=r"optimizer\.lr is missing"):
        OptimConstructor({"optimizer": {"type": "AdamW"}})
    with pytest.raises(UserError, match=r"optim_wrapper\.optimizer is missing"):
        OptimConstructor({"type": "OptimWrapper"})


@pytest.mark.parametrize("kind", ["PolaSwin", "PolaPVT"])
def test_real_backbones_under_both_rules_and_layer_decay(kind):
    model = MODELS.build(
        {
            "type": "polaformer.ImageClassifier",
            "backbone": {"type": f"polaformer.{kind}", "arch": "nano", "img_size": 32},
            "head": {"type": "polaformer.LinearHead", "num_classes": 3},
        }
    )
    published = settings(model, layer_decay_rate=0.5)
    usual = settings(model, decay_rule="usual", layer_decay_rate=0.5)
    tables = ("power", "scale", "positional_encoding", "pos_embed")
    contested = {n for n in published if n.rsplit(".", 1)[-1] in tables}
    differ = {n for n in published if published[n] != usual[n]}
    assert contested
    assert differ == contested
    for name, (_, decay) in published.items():
        vector = model.get_parameter(name).ndim == 1
        bias_table = name.endswith("relative_position_bias_table")
        assert decay == (0.0 if vector or bias_table else DECAY), name
    stem = next(n for n in published if "patch_embed.proj.weight" in n)
    assert published[stem][0] == pytest.approx(LR * 0.5**6)  # five blocks between stem and head
    assert published["head.fc.weight"][0] == LR
