"""Keep bad steps away from the weights, and stop when they do not end."""

from __future__ import annotations

import math
from typing import Any

import torch
from mmengine.hooks import Hook

from polaformer.engine.units import counts_iterations
from polaformer.errors import UserError
from polaformer.registry import HOOKS

BAD_STEPS = "bad_steps"
"""Where the message hub keeps how many bad steps there were since the last good one."""

LAST_GOOD = "last_ckpt"
"""Where the message hub keeps the checkpoint that was stored before anything was not finite."""


class TrainingDiverged(UserError):
    """Training was stopped because its loss or gradients stayed non-finite."""


def gradients_finite(parameters: list[torch.Tensor]) -> bool:
    """Whether every gradient is finite; one synchronisation with the device."""
    gradients = [param.grad for param in parameters if param.grad is not None]
    if not gradients:
        return True
    largest = torch._foreach_norm(gradients, math.inf)
    return all(
        torch.isfinite(torch.stack([norm.to(group[0]) for norm in group])).all().item()
        for group in _by_device(largest)
    )


def _by_device(tensors: Any) -> list[list[torch.Tensor]]:
    groups: dict[torch.device, list[torch.Tensor]] = {}
    for tensor in tensors:
        groups.setdefault(tensor.device, []).append(tensor.float())
    return list(groups.values())


@HOOKS.register_module()
class HealthHook(Hook):
    """Leave the optimiser step out when gradients are not finite; stop after too many in a row.

    While bad steps go on nothing is stored, and a run that ends among them has failed: the weights
    that give them are no result. With accumulation only an update ends them. The count is part of
    the checkpoint.

    A gradient scaler that lowers its scale after an overflow is doing its work: such a step counts
    only once the scale has fallen to 1, where there is nothing left to lower.

    Args:
        max_bad_steps: consecutive bad steps after which training stops.

    Raises:
        TrainingDiverged: with iteration, loss and the last good checkpoint.
    """

    priority = "HIGH"

    def __init__(self, max_bad_steps: int = 10) -> None:
        if max_bad_steps < 1:
            raise UserError(f"HealthHook.max_bad_steps is {max_bad_steps}; allowed: 1 or more")
        self.max_bad_steps = max_bad_steps
        self.bad_steps = 0
        self._bad_gradients = self._updated = False
        self._scale: float | None = None
        self._handles: list[Any] = []

    def before_train(self, runner: Any) -> None:
        """Look at the gradients right before every optimiser step; continue the count."""
        self.bad_steps = runner.message_hub.get_info(BAD_STEPS, 0)
        optimizer = runner.optim_wrapper.optimizer
        self._handles.append(optimizer.register_step_pre_hook(self._before_step))

    def after_train(self, runner: Any) -> None:
        """Take the look at the gradients off again; bad steps at the end are an error."""
        while self._handles:
            self._handles.pop().remove()
        if self.bad_steps:
            raise TrainingDiverged(self._message(runner, runner.iter, "the end"))

    def _before_step(self, optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:
        self._updated = True
        parameters = [param for group in optimizer.param_groups for param in group["params"]]
        if gradients_finite(parameters):
            return
        self._bad_gradients = True
        for param in parameters:
            # torch's optimisers pass over a parameter without a gradient, momentum included.
            param.grad = None

    def before_train_iter(self, runner: Any, batch_idx: int, data_batch: Any = None) -> None:
        """Remember the scale of the gradient scaler."""
        self._bad_gradients = self._updated = False
        self._scale = _scale_of(runner.optim_wrapper)

    def after_train_iter(
        self, runner: Any, batch_idx: int, data_batch: Any = None, outputs: dict | None = None
    ) -> None:
        """Count the step if it was bad."""
        loss = _number((outputs or {}).get("loss", 0.0))
        scale = _scale_of(runner.optim_wrapper)
        if self._scale is None or scale is None:
            bad_gradients = self._bad_gradients
        else:
            overflow = self._bad_gradients or scale < self._scale
            bad_gradients = overflow and scale <= 1.0
        if math.isfinite(loss) and not bad_gradients:
            self._count(runner, 0 if self._updated else self.bad_steps)
            return
        self._count(runner, self.bad_steps + 1)
        what = f"loss {loss}" if not math.isfinite(loss) else "a gradient that is not finite"
        runner.logger.warning(
            f"iteration {runner.iter + 1}: {what}; the weights are left as they were "
            f"({self.bad_steps} in a row, stop at {self.max_bad_steps})"
        )
        if self.bad_steps >= self.max_bad_steps:
            by_iter = counts_iterations(runner.train_loop)
            place = f"of {runner.max_iters}" if by_iter else f"epoch {runner.epoch + 1}"
            raise TrainingDiverged(
                self._message(runner, runner.iter + 1, place, f" (last loss {loss})")
            )

    def _count(self, runner: Any, bad_steps: int) -> None:
        self.bad_steps = bad_steps
        runner.message_hub.update_info(BAD_STEPS, bad_steps)

    def _message(self, runner: Any, iteration: int, place: str, detail: str = "") -> str:
        last = runner.message_hub.get_info(LAST_GOOD)
        return (
            f"training stopped at iteration {iteration} ({place}): {self.bad_steps} steps in a row "
            f"had a loss or gradient that is not finite{detail}. "
            f"Last good checkpoint: {last or 'none yet'}. "
            "Try a lower learning rate, optim_wrapper.clip_grad, or bf16 instead of fp16"
        )


def _number(value: Any) -> float:
    return value.detach().item() if isinstance(value, torch.Tensor) else float(value)


def _scale_of(wrapper: Any) -> float | None:
    scaler = getattr(wrapper, "loss_scaler", None)
    return scaler.get_scale() if scaler is not None and scaler.is_enabled() else None
