"""The learning-rate schedule of the detection recipes, in closed form."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence

from mmengine.optim import OptimWrapper
from mmengine.optim.scheduler.lr_scheduler import LRSchedulerMixin
from mmengine.optim.scheduler.param_scheduler import INF, _ParamScheduler
from torch.optim import Optimizer

from polaformer.errors import UserError
from polaformer.registry import PARAM_SCHEDULERS


@PARAM_SCHEDULERS.register_module()
class WarmupStepLR(LRSchedulerMixin, _ParamScheduler):
    """Linear warm-up over some iterations, then a fall by ``gamma`` at each milestone.

    With base rate ``b`` and step ``t``: ``b * gamma ** (milestones passed)``, and during the
    warm-up of ``w`` steps that times ``r + (1 - r) t / w`` with ``r = warmup_ratio``. ``w`` is
    ``warmup_iters``, but at most a tenth of the way to the first milestone: on a small data set
    500 iterations may be more than a whole training (mmengine's linear and multi-step schedulers
    in a row would then never reach the full rate). On COCO with 16 images per step the two agree.

    ``milestones`` are iterations; in a config, epochs with ``convert_to_iter_based=True``. The
    value depends on the step alone, so a resumed run continues exactly.

    Raises:
        UserError: milestones that do not rise, or numbers out of range.
    """

    def __init__(
        self,
        optimizer: Optimizer | OptimWrapper,
        milestones: Sequence[int],
        gamma: float = 0.1,
        warmup_iters: int = 0,
        warmup_ratio: float = 1e-3,
        end: int = INF,
        last_step: int = -1,
        by_epoch: bool = True,
        verbose: bool = False,
    ) -> None:
        if by_epoch:
            raise UserError("param_scheduler: WarmupStepLR needs convert_to_iter_based=True")
        rising = list(milestones) == sorted(set(milestones))
        if not milestones or not rising or milestones[0] < 1:
            raise UserError(
                f"param_scheduler.milestones is {tuple(milestones)}; needed: rising, from 1 up"
            )
        for name, ratio in (("warmup_ratio", warmup_ratio), ("gamma", gamma)):
            if not 0.0 <= ratio <= 1.0:
                raise UserError(f"param_scheduler.{name} is {ratio}; allowed: 0 to 1")
        if warmup_iters < 0:
            raise UserError(f"param_scheduler.warmup_iters is {warmup_iters}; allowed: 0 and more")
        self.milestones = tuple(milestones)
        self.gamma = gamma
        self.warmup = min(warmup_iters, self.milestones[0] // 10)
        self.warmup_ratio = warmup_ratio
        super().__init__(
            optimizer, end=end, last_step=last_step, by_epoch=by_epoch, verbose=verbose
        )

    @classmethod
    def build_iter_from_epoch(
        cls,
        optimizer: Optimizer | OptimWrapper,
        milestones: Sequence[float],
        epoch_length: int,
        gamma: float = 0.1,
        warmup_iters: int = 0,
        warmup_ratio: float = 1e-3,
        end: int = INF,
        last_step: int = -1,
        by_epoch: bool = True,
        verbose: bool = False,
    ) -> WarmupStepLR:
        """The schedule with milestones in epochs: mmengine's ``convert_to_iter_based``."""
        return cls(
            optimizer,
            milestones=[int(epoch * epoch_length) for epoch in milestones],
            gamma=gamma,
            warmup_iters=warmup_iters,
            warmup_ratio=warmup_ratio,
            end=end if end == INF else int(end * epoch_length),
            last_step=last_step,
            by_epoch=False,
            verbose=verbose,
        )

    def factor(self, step: int) -> float:
        """The rate at ``step`` as a multiple of the base rate."""
        if step < self.warmup:
            return self.warmup_ratio + (1 - self.warmup_ratio) * step / self.warmup
        return self.gamma ** bisect_right(self.milestones, step)

    def _get_value(self) -> list[float]:
        return [base * self.factor(self.last_step) for base in self.base_values]
