from __future__ import annotations

from typing import Any

import pytest
import torch
from mmengine.optim import LinearLR, MultiStepLR

from polaformer.engine.warmup_step import WarmupStepLR
from polaformer.errors import UserError
from polaformer.registry import PARAM_SCHEDULERS


def optimizer() -> torch.optim.Optimizer:
    return torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1e-4)


def build(epoch_length: int, **settings: Any) -> WarmupStepLR:
    cfg = {
        "type": "polaformer.WarmupStepLR",
        "milestones": (8, 11),
        "warmup_iters": 50,
        "convert_to_iter_based": True,
        **settings,
    }
    arguments = {"optimizer": optimizer(), "epoch_length": epoch_length}
    return PARAM_SCHEDULERS.build(cfg, default_args=arguments)


def rates(scheduler: WarmupStepLR, steps: int) -> list[float]:
    found = []
    for _ in range(steps):
        found.append(scheduler.optimizer.param_groups[0]["lr"])
        scheduler.optimizer.step()
        scheduler.step()
    return found


def test_equals_linear_and_multi_step_of_mmengine():
    """Whose linear schedule reaches the full rate after ``end`` - 1 steps."""
    both = optimizer()
    warmup = LinearLR(both, start_factor=1e-3, by_epoch=False, begin=0, end=51)
    decay = MultiStepLR(both, milestones=[640, 880], by_epoch=False)
    theirs = []
    for _ in range(960):
        theirs.append(both.param_groups[0]["lr"])
        both.step()
        warmup.step()
        decay.step()
    assert rates(build(80), 960) == pytest.approx(theirs, rel=1e-9)


@pytest.mark.parametrize("epoch_length, warmup", [(1, 0), (2, 1), (24, 19), (62, 49), (63, 50)])
def test_warm_up_is_at_most_a_tenth_of_the_way_to_the_first_fall(epoch_length, warmup):
    scheduler = build(epoch_length)
    assert scheduler.warmup == warmup
    assert scheduler.factor(warmup) == 1.0
    assert scheduler.factor(0) == (1e-3 if warmup else 1.0)


def test_a_resumed_run_of_detection_continues_exactly():
    whole = rates(build(20), 240)
    first, second = build(20), build(20)
    rates(first, 165)
    second.optimizer.load_state_dict(first.optimizer.state_dict())
    second.load_state_dict(first.state_dict())
    assert rates(second, 75) == whole[165:]


@pytest.mark.parametrize(
    "settings, text",
    [
        ({"milestones": (11, 8)}, "milestones is (220, 160); needed: rising"),
        ({"milestones": ()}, "milestones is (); needed"),
        ({"gamma": 2.0}, "gamma is 2.0; allowed: 0 to 1"),
        ({"warmup_ratio": -1.0}, "warmup_ratio is -1.0; allowed: 0 to 1"),
        ({"warmup_iters": -1}, "warmup_iters is -1; allowed"),
        ({"convert_to_iter_based": False}, "needs convert_to_iter_based=True"),
    ],
)
def test_impossible_step_schedules_are_told(settings, text):
    with pytest.raises(UserError, match="param_scheduler") as error:
        build(20, **settings)
    assert text in str(error.value)
