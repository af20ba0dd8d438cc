"""Where the weights lie in a file, and whose they are."""

from __future__ import annotations

import pytest
import torch

from polaformer.checkpoint import CheckpointError, find_state, strip_prefixes
from polaformer.checkpoint.state import ema_container

PLAIN = {"a.weight": torch.zeros(1)}
AVERAGED = {"a.weight": torch.ones(1)}


def value(found) -> float:
    return found[0]["a.weight"].item()


@pytest.mark.parametrize("name", ["model", "state_dict", "module"])
def test_plain_containers(name):
    assert find_state({name: PLAIN, "epoch": 3})[1] == name
    assert value(find_state({name: PLAIN, "epoch": 3})) == 0


@pytest.mark.parametrize("name", ["state_dict_ema", "model_ema", "ema_state_dict"])
def test_averaged_containers_are_taken_on_request_or_for_want_of_others(name):
    both = {"model": PLAIN, name: AVERAGED}
    assert find_state(both)[1] == "model"
    assert value(find_state(both, prefer_ema=True)) == 1
    assert find_state(both, prefer_ema=True)[1] == name
    assert value(find_state({name: AVERAGED, "epoch": 1})) == 1
    assert value(find_state({"model": PLAIN}, prefer_ema=True)) == 0
    assert ema_container(both) == name


def test_mmengine_keeps_the_average_in_state_dict():
    swapped = {
        "state_dict": AVERAGED,
        "ema_state_dict": {"steps": torch.tensor(3), "module.a.weight": torch.zeros(1)},
    }
    assert value(find_state(swapped, prefer_ema=True)) == 1
    assert value(find_state(swapped)) == 1


def test_nested_and_bare():
    assert find_state({"model": {"state_dict": PLAIN}})[1] == "model.state_dict"
    assert value(find_state({"ema": {"model": AVERAGED}}, prefer_ema=True)) == 1
    assert find_state(PLAIN) == (PLAIN, "")
    assert find_state({"weight": torch.zeros(2)})[1] == ""


def test_values_that_are_no_tensors_are_left_out():
    assert find_state({**PLAIN, "note": "x"})[0] == PLAIN


def test_nothing_found_lists_what_is_there():
    with pytest.raises(CheckpointError, match=r"'epoch', 'optimizer'.*'?state dict"):
        find_state({"epoch": 1, "optimizer": {"state": {}}})
    with pytest.raises(CheckpointError, match="holds nothing"):
        find_state({})


def loop() -> dict:
    node: dict = {}
    node["model"] = node
    return node


def test_a_container_of_itself_ends():
    with pytest.raises(CheckpointError):
        find_state(loop())


NAMES = [
    "patch_embed.proj.weight",
    "stages.0.blocks.0.norm1.weight",
    "stages.1.blocks.0.norm1.bias",
]


@pytest.mark.parametrize(
    "prefix",
    [
        "",
        "module.",
        "_orig_mod.",
        "backbone.",
        "module._orig_mod.backbone.",
        "model.backbone.module.",
        "encoder.",
        "backbone._orig_mod.",
    ],
)
@pytest.mark.parametrize("wanted", ["", "backbone.", "model.backbone.", "_orig_mod."])
def test_any_stack_of_prefixes_on_either_side(prefix, wanted):
    state = {prefix + name: torch.zeros(1) for name in NAMES}
    reference = [wanted + name for name in NAMES]
    assert sorted(strip_prefixes(state, reference)) == sorted(reference)


def test_a_classifier_into_a_backbone_leaves_the_head():
    state = {f"module.backbone.{name}": torch.zeros(1) for name in NAMES}
    state["module.head.fc.weight"] = torch.zeros(1)
    assert set(strip_prefixes(state, NAMES)) == {*NAMES, "module.head.fc.weight"}


def test_a_compiled_backbone_inside_a_classifier():
    state = {f"backbone._orig_mod.{name}": torch.zeros(1) for name in NAMES}
    state["head.fc.weight"] = torch.zeros(1)
    reference = [*(f"backbone.{name}" for name in NAMES), "head.fc.weight"]
    assert sorted(strip_prefixes(state, reference)) == sorted(reference)


def test_a_flat_classifier_into_one_with_a_backbone():
    state = {name: torch.zeros(1) for name in [*NAMES, "head.fc.weight"]}
    reference = [*(f"backbone.{name}" for name in NAMES), "head.fc.weight"]
    assert sorted(strip_prefixes(state, reference)) == sorted(reference)


def test_unknown_prefixes_are_not_guessed():
    state = {f"foo.{name}": torch.zeros(1) for name in NAMES}
    assert set(strip_prefixes(state, NAMES)) == set(state)


def test_windowed_and_global_attention_share_names():
    state = {"stages.0.blocks.0.attn.attn.qkv.weight": torch.zeros(1)}
    reference = ["stages.0.blocks.0.attn.qkv.weight"]
    assert list(strip_prefixes(state, reference)) == reference


def test_a_name_that_is_there_wins_over_one_that_is_made():
    """Two names of the file mean one of the model: the exact one is loaded."""
    state = {"module.w": torch.zeros(1), "w": torch.ones(1)}
    assert strip_prefixes(state, ["w"])["w"].item() == 1
