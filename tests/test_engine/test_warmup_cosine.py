from __future__ import annotations

import math

import pytest
import torch
from timm.scheduler import CosineLRScheduler

from polaformer.engine.warmup_cosine import WarmupCosineLR
from polaformer.errors import UserError
from polaformer.registry import PARAM_SCHEDULERS

BASE = 1e-3


def optimizer(lr: float = BASE) -> torch.optim.Optimizer:
    return torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=lr)


def rates(scheduler: WarmupCosineLR, steps: int) -> list[float]:
    found = []
    for _ in range(steps):
        found.append(scheduler.optimizer.param_groups[0]["lr"])
        scheduler.optimizer.step()
        scheduler.step()
    return found


def test_equals_timm_over_a_whole_run_and_its_cooldown():
    mine = rates(
        WarmupCosineLR(optimizer(), 60, warmup=8, warmup_ratio=2e-3, eta_min_ratio=2e-2), 70
    )
    theirs = CosineLRScheduler(
        optimizer(), 60, lr_min=2e-5, warmup_lr_init=2e-6, warmup_t=8, cycle_limit=1
    )
    assert mine == pytest.approx([theirs._get_lr(step)[0] for step in range(70)], rel=1e-12)


def test_key_values_of_the_published_swin_schedule_by_iteration():
    cfg = {
        "type": "polaformer.WarmupCosineLR",
        "T_max": 300,
        "warmup": 20,
        "warmup_ratio": 1e-3,
        "eta_min_ratio": 1e-2,
        "convert_to_iter_based": True,
    }
    scheduler = PARAM_SCHEDULERS.build(
        cfg, default_args={"optimizer": optimizer(), "epoch_length": 1251}
    )
    assert scheduler.by_epoch is False
    assert scheduler.factor(0) * BASE == pytest.approx(1e-6)
    half_warm = (1e-6 + BASE) / 2
    assert scheduler.factor(10 * 1251) * BASE == pytest.approx(half_warm)
    at_20 = 1e-5 + (BASE - 1e-5) * (1 + math.cos(math.pi / 15)) / 2
    assert scheduler.factor(20 * 1251) * BASE == pytest.approx(at_20)
    assert scheduler.factor(150 * 1251) * BASE == pytest.approx((BASE + 1e-5) / 2)
    assert scheduler.factor(300 * 1251) * BASE == 1e-5


def test_groups_keep_their_ratio():
    params = [torch.nn.Parameter(torch.zeros(1)) for _ in range(2)]
    two = torch.optim.SGD([{"params": params[:1], "lr": 1.0}, {"params": params[1:], "lr": 0.25}])
    scheduler = WarmupCosineLR(two, 10, warmup=2)
    for _ in range(7):
        two.step()
        scheduler.step()
        assert two.param_groups[1]["lr"] == pytest.approx(two.param_groups[0]["lr"] / 4)


def test_a_resumed_run_continues_exactly():
    whole = rates(WarmupCosineLR(optimizer(), 20, warmup=3), 20)
    first = WarmupCosineLR(optimizer(), 20, warmup=3)
    rates(first, 9)
    second = WarmupCosineLR(optimizer(), 20, warmup=3)
    second.optimizer.load_state_dict(first.optimizer.state_dict())
    second.load_state_dict(first.state_dict())
    assert rates(second, 11) == whole[9:]


@pytest.mark.parametrize(
    "arguments, words",
    [
        ({"T_max": 5, "warmup": 5}, "warmup 5, T_max 5"),
        ({"T_max": 5, "warmup_ratio": 1.1}, "warmup_ratio is 1.1"),
        ({"T_max": 5, "eta_min_ratio": -0.1}, "eta_min_ratio is -0.1"),
    ],
)
def test_impossible_values_are_named(arguments, words):
    with pytest.raises(UserError, match=words):
        WarmupCosineLR(optimizer(), **arguments)
