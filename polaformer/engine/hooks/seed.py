"""Seed every training step by where it is in the run."""

from __future__ import annotations

from typing import Any

from mmengine.dist import get_rank
from mmengine.hooks import Hook

from polaformer.engine.seeding import derive_seed, seed_everything
from polaformer.registry import HOOKS


@HOOKS.register_module()
class StepSeedHook(Hook):
    """Make drop path, mixup and whatever else a step draws a function of (seed, rank, iteration).

    A resumed run then draws what the uninterrupted one would have drawn, without any history.
    """

    priority = "VERY_HIGH"

    def before_train_iter(self, runner: Any, batch_idx: int, data_batch: Any = None) -> None:
        """Seed the generators of this process for the coming step."""
        seed_everything(derive_seed(runner.seed, get_rank(), runner.iter))
