from __future__ import annotations

from typing import Any

import pytest
import torch
from mmengine.optim import PolyLR

from polaformer.engine.units import with_unit
from polaformer.engine.warmup_poly import WarmupPolyLR
from polaformer.errors import UserError
from polaformer.registry import PARAM_SCHEDULERS


def optimizer() -> torch.optim.Optimizer:
    return torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1e-4)


def build(**settings: Any) -> WarmupPolyLR:
    cfg = {"type": "polaformer.WarmupPolyLR", "end": 400, **settings}
    return PARAM_SCHEDULERS.build(cfg, default_args={"optimizer": optimizer(), "epoch_length": 100})


def rates(scheduler: Any, steps: int) -> list[float]:
    found = []
    for _ in range(steps):
        found.append(scheduler.optimizer.param_groups[0]["lr"])
        scheduler.optimizer.step()
        scheduler.step()
    return found


@pytest.mark.parametrize("power, eta_min", [(1.0, 0.0), (0.9, 1e-6)])
def test_equals_the_polynomial_of_mmengine(power, eta_min):
    """Which reaches its last rate in ``end`` - 1 steps and multiplies one step by the next."""
    theirs = PolyLR(optimizer(), power=power, eta_min=eta_min, begin=0, end=401, by_epoch=False)
    ours = build(power=power, eta_min_ratio=eta_min / 1e-4, warmup_iters=0)
    assert rates(ours, 400) == pytest.approx(rates(theirs, 400), rel=1e-9)


def test_the_rates_of_a_warm_up():
    """160,000 steps, 1500 of them warm-up: values by hand from the formula."""
    scheduler = build(end=160_000)
    assert scheduler.factor(0) == 1e-6
    assert scheduler.factor(750) == pytest.approx((1 - 750 / 160_000) * (1e-6 + (1 - 1e-6) / 2))
    assert scheduler.factor(1500) == pytest.approx(1 - 1500 / 160_000)
    assert scheduler.factor(159_999) == pytest.approx(1 / 160_000)


@pytest.mark.parametrize(
    "end, warmup", [(9, 0), (10, 1), (400, 40), (15_000, 1500), (160_000, 1500)]
)
def test_warm_up_is_at_most_a_tenth_of_the_training(end, warmup):
    scheduler = build(end=end)
    assert scheduler.warmup == warmup
    assert max(scheduler.factor(step) for step in range(end)) == scheduler.factor(warmup)


def test_a_resumed_run_of_segmentation_continues_exactly():
    whole = rates(build(), 400)
    first, second = build(), build()
    rates(first, 165)
    second.optimizer.load_state_dict(first.optimizer.state_dict())
    second.load_state_dict(first.state_dict())
    assert rates(second, 235) == whole[165:]


def test_lengths_in_epochs_become_iterations():
    scheduler = build(end=4, convert_to_iter_based=True)
    assert (scheduler.length, scheduler.end, scheduler.by_epoch) == (400, 400, False)


@pytest.mark.parametrize(
    "settings, text",
    [
        ({"power": 0.0}, "power is 0.0; allowed: more than 0"),
        ({"warmup_ratio": -1.0}, "warmup_ratio is -1.0; allowed: 0 to 1"),
        ({"eta_min_ratio": 2.0}, "eta_min_ratio is 2.0; allowed: 0 to 1"),
        ({"warmup_iters": -1}, "warmup_iters is -1; allowed"),
        ({"by_epoch": True}, "needed: by_epoch=False"),
        ({"end": 10**9}, "needs the length of the training"),
    ],
)
def test_impossible_polynomial_schedules_are_told(settings, text):
    with pytest.raises(UserError, match="param_scheduler") as error:
        build(**settings)
    assert text in str(error.value)


@pytest.mark.parametrize(
    "schedule, by_iter, unit",
    [
        ({"type": "LinearLR"}, True, False),
        ({"type": "LinearLR"}, False, None),
        ({"type": "LinearLR", "by_epoch": False}, False, False),
        ({"type": "polaformer.WarmupPolyLR"}, True, False),
        ({"type": "polaformer.WarmupPolyLR"}, False, False),
        ({"type": "polaformer.WarmupCosineLR"}, True, False),
        ({"type": "ReduceOnPlateauLR"}, True, None),
    ],
)
def test_a_schedule_counts_what_the_loop_counts(schedule, by_iter, unit):
    assert with_unit(schedule, by_iter).get("by_epoch") is unit


@pytest.mark.parametrize("key", ["by_epoch", "convert_to_iter_based"])
def test_a_schedule_by_epochs_in_a_run_without_is_refused(key):
    with pytest.raises(UserError, match="LinearLR counts epochs and train_cfg iterations; leave"):
        with_unit({"type": "LinearLR", key: True}, by_iter=True)
