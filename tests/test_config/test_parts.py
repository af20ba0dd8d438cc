from __future__ import annotations

import pytest

from polaformer.config.check import check_file
from polaformer.config.refusals import refusal

WARMUP = """
_base_ = ['_base_/runtime.py', '_base_/data.py', '_base_/model.py']
runner_type = 'polaformer.Runner'
optim_wrapper = dict(optimizer=dict(type='AdamW', lr=1e-3, betas=(0.9, 0.999)))
param_scheduler = dict(
    type='polaformer.WarmupCosineLR', T_max=10, warmup=2, convert_to_iter_based=True)
train_cfg = dict(by_epoch=True, max_epochs=10)
"""
VALIDATION = """
val_dataloader = dict(
    sampler=dict(type='DefaultSampler', shuffle=False),
    dataset=dict(type='polaformer.ImageFolder', root='data/toy', split='val'),
)
val_cfg = dict()
"""


def problems(tree, text: str, overrides=()) -> list[str]:
    tree.write("warm.py", WARMUP)
    tree.write("child.py", f"_base_ = 'warm.py'\n{text}")
    return check_file("child.py", overrides, require_data=False, sizes=False).problems


@pytest.mark.parametrize(
    "text, line",
    [
        (
            "custom_hooks = [dict(type='EMAHook', momentum=5)]",
            "custom_hooks.0.momentum (child.py:2): momentum must be in range (0.0, 1.0)",
        ),
        (
            "custom_hooks = [dict(type='EarlyStoppingHook', monitor='x', rule='up')]",
            "custom_hooks.0.rule (child.py:2): `rule` should be either",
        ),
        (
            "custom_hooks = [dict(type='EMAHook', priority='SOON')]",
            "custom_hooks.0 (child.py:2): KeyError: SOON",
        ),
        (
            "default_hooks = dict(health=dict(max_bad_steps=0))",
            "default_hooks.health.max_bad_steps (child.py:2): HealthHook.max_bad_steps is 0",
        ),
        (
            "default_hooks = dict(checkpoint=dict(rule='x', save_best='loss'))",
            "default_hooks.checkpoint.rule (child.py:2): rule must be greater, less or None",
        ),
        (
            VALIDATION + "val_evaluator = dict(type='polaformer.Accuracy', topk=(1, '5'))",
            "val_evaluator.topk (child.py:8): topk=(1, '5') must be positive whole numbers",
        ),
        (
            "optim_wrapper = dict(optimizer=dict(lr='1e-3'))",
            "optim_wrapper.optimizer.lr (child.py:2): lr expects float, got '1e-3'",
        ),
        (
            "optim_wrapper = dict(optimizer=dict(betas=(0.9, 5.0)))",
            "optim_wrapper (child.py:2): Invalid beta parameter at index 1: 5.0",
        ),
        (
            "optim_wrapper = dict(optimizer=dict(betas=(0.9,)))",
            "optim_wrapper (child.py:2): ",
        ),
        (
            "train_dataloader = dict(pin_memory='maybe')",
            "train_dataloader.pin_memory (child.py:2): pin_memory expects bool, got 'maybe'",
        ),
    ],
)
def test_what_a_part_refuses(tree, text, line):
    found = problems(tree, text)
    assert any(line in problem for problem in found), found


@pytest.mark.parametrize(
    "change, line",
    [
        ("warmup=10", "param_scheduler (child.py:2): warmup 10, T_max 10; needed: 0 <= warmup"),
        ("T_max=0", "param_scheduler (child.py:2): warmup 2, T_max 0; needed"),
        ("T_max=-5", "warmup 2, T_max -5; needed"),
        ("warmup_ratio=-1.0", "param_scheduler.warmup_ratio (child.py:2): "),
        ("by_epoch=False", "`epoch_length` should be set"),
    ],
)
def test_a_schedule_that_cannot_be_is_told_in_the_units_of_the_config(tree, change, line):
    found = problems(tree, f"param_scheduler = dict({change})")
    assert any(line in problem for problem in found), found


def test_a_sound_config_stays_sound(tree):
    assert problems(tree, "custom_hooks = [dict(type='EMAHook', momentum=1e-3)]") == []


def test_an_exception_is_told_as_a_sentence():
    assert refusal(KeyError("momentum")) == "KeyError: momentum"
    assert refusal(ValueError("lr must\n  be positive")) == "lr must be positive"
    assert refusal(TypeError("'<' not supported")) == "TypeError: '<' not supported"
    assert refusal(AssertionError()) == "AssertionError"


STEPS = """
param_scheduler = dict(_delete_=True, type='polaformer.WarmupStepLR', milestones=[6, 8],
                       convert_to_iter_based=True)
"""


@pytest.mark.parametrize(
    "change, sentence",
    [
        ("milestones=[6, 8]", "milestones is (8, 6); needed: rising, from 1 up"),
        ("convert_to_iter_based=True", "WarmupStepLR needs convert_to_iter_based=True"),
        ("milestones=[6, 8]", "gamma is 2.0; allowed: 0 to 1"),
        ("milestones=[6, 8]", "warmup_ratio is -1.0; allowed: 0 to 1"),
        ("milestones=[6, 8]", "warmup_iters is -5; allowed: 0 and more"),
    ],
)
def test_steps_that_cannot_be_are_told_as_they_are(tree, change, sentence):
    """Also where a second try, in the unit of the config, is refused for another reason."""
    name, _, value = sentence.partition(";")[0].partition(" is ")
    now = f"milestones=[6, 8], {name}={value}" if value else "convert_to_iter_based=False"
    now = f"milestones={value}" if name == "milestones" else now
    (problem,) = problems(tree, STEPS.replace(change, now))
    assert problem.startswith("param_scheduler")
    assert sentence in problem
    assert problems(tree, STEPS) == []
