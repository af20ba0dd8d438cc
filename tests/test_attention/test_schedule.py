from __future__ import annotations

import pytest

from polaformer.attention import build_attention, parse_schedule
from polaformer.errors import UserError

DEPTHS = (2, 2, 6, 2)


def names(spec, depths=DEPTHS):
    return [[entry["type"] for entry in stage] for stage in parse_schedule(spec, depths)]


def test_one_name_is_every_block():
    assert names("pola") == [["pola"] * d for d in DEPTHS]


def test_letters_are_stages():
    assert names("LLSS") == [["pola"] * 2, ["pola"] * 2, ["softmax"] * 6, ["softmax"] * 2]


def test_pattern_repeats_over_all_blocks():
    flat = [name for stage in names("pola*7+softmax") for name in stage]
    assert flat == ["pola"] * 7 + ["softmax"] + ["pola"] * 4


def test_lists_by_stage_by_block_and_nested():
    by_stage = ["pola", "softmax", {"type": "pola", "alpha": 3}, "softmax"]
    assert parse_schedule(by_stage, DEPTHS)[2] == [{"type": "pola", "alpha": 3}] * 6
    by_block = ["pola", "softmax"] * 6
    assert names(by_block)[0] == ["pola", "softmax"]
    nested = [["pola", "softmax"], "pola", ["softmax"] * 6, ["pola"] * 2]
    assert names(nested)[0] == ["pola", "softmax"]


def test_blocks_do_not_share_a_config():
    schedule = parse_schedule({"type": "pola", "alpha": 3}, DEPTHS)
    schedule[0][0]["alpha"] = 1
    assert schedule[0][1]["alpha"] == 3


@pytest.mark.parametrize(
    "spec, words",
    [
        ("pole", ["attention", "'pole'", "did you mean 'pola'?", "softmax"]),
        ("LLS", ["attention='LLS'", "3 letters", "4 stages"]),
        ("LLXS", ["'X'", "stage 3", "L = pola"]),
        ("pola*x+softmax", ["pola*x", "NAME*COUNT"]),
        ("pola*0", ["pola*0"]),
        ("pola+", ["attention"]),
        (["pola"] * 5, ["5 attentions", "4 (one a stage)", "12"]),
        ([["pola"], "pola", "pola", "pola"], ["attention[0]", "allowed: 2"]),
        (["pola", "sofmax", "pola", "pola"], ["attention[1]", "did you mean 'softmax'?"]),
        ({"alpha": 3}, ["type"]),
        (7, ["7", "int"]),
        (None, ["None"]),
        ([], ["0 attentions"]),
    ],
)
def test_mistakes_name_field_value_and_what_is_allowed(spec, words):
    with pytest.raises(UserError) as error:
        parse_schedule(spec, DEPTHS)
    for word in words:
        assert word in str(error.value)


def test_wrong_argument_of_an_attention_names_the_nearest():
    with pytest.raises(UserError, match=r"alpah.*did you mean 'alpha'\?"):
        build_attention({"type": "pola", "alpah": 3}, dim=8, num_heads=2, grid_size=(2, 2))


@pytest.mark.parametrize("extra", [{"kernel_size": 4}, {"alpha": -1}, {"value_upsample": "cubic"}])
def test_wrong_values_say_what_is_allowed(extra):
    with pytest.raises(UserError, match="allowed"):
        build_attention({"type": "pola", **extra}, dim=8, num_heads=2, grid_size=(2, 2))


def test_heads_that_do_not_divide():
    with pytest.raises(UserError, match="num_heads=3"):
        build_attention("softmax", dim=8, num_heads=3, grid_size=(2, 2))
