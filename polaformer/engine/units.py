"""Whether a training is measured in epochs or in iterations, and what follows from it."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

from mmengine.runner import IterBasedTrainLoop

from polaformer.errors import UserError
from polaformer.registry import PARAM_SCHEDULERS


def counts_iterations(loop: Any) -> bool:
    """Whether a training loop, or the config of one, counts iterations instead of epochs."""
    if isinstance(loop, Mapping):
        return "max_iters" in loop
    return isinstance(loop, IterBasedTrainLoop)


def with_unit(schedule: Any, by_iter: bool) -> Any:
    """The config of a schedule with ``by_epoch``, where it leaves that to the training loop.

    Raises:
        UserError: a schedule by epochs in a training that has none: it would never step.
    """
    if not isinstance(schedule, Mapping) or "type" not in schedule:
        return schedule
    kind = PARAM_SCHEDULERS.get(schedule["type"])
    if kind is None or getattr(kind, "need_val_args", False):
        return schedule
    if by_iter and (schedule.get("by_epoch") or schedule.get("convert_to_iter_based")):
        raise UserError(
            f"param_scheduler: {schedule['type']} counts epochs and train_cfg iterations; leave "
            "by_epoch and convert_to_iter_based out and give its lengths in iterations"
        )
    if "by_epoch" in schedule or schedule.get("convert_to_iter_based"):
        return schedule
    unit = inspect.signature(kind).parameters.get("by_epoch")
    if by_iter or (unit is not None and unit.default is False):
        return {**schedule, "by_epoch": False}
    return schedule
