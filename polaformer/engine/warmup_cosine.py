"""The learning-rate schedule of the published recipes, in closed form."""

from __future__ import annotations

import math

from mmengine.optim import OptimWrapper
from mmengine.optim.scheduler.lr_scheduler import LRSchedulerMixin
from mmengine.optim.scheduler.param_scheduler import INF, _ParamScheduler
from torch.optim import Optimizer

from polaformer.errors import UserError
from polaformer.registry import PARAM_SCHEDULERS


@PARAM_SCHEDULERS.register_module()
class WarmupCosineLR(LRSchedulerMixin, _ParamScheduler):
    """Linear warm-up into a cosine that is already running, then a constant end.

    With base rate ``b``, step ``t``, ``w = warmup`` and ``T = T_max``:
    ``b * (r + (1 - r) t / w)`` for ``t < w`` with ``r = warmup_ratio``;
    ``b * (m + (1 - m) (1 + cos(pi t / T)) / 2)`` for ``w <= t < T`` with ``m = eta_min_ratio``;
    ``b * m`` from ``T`` on, which is the cool-down. The cosine counts from step 0, not from the
    end of the warm-up, as timm's scheduler does by default; the published config has no switch for
    it. (mmengine's linear and cosine schedulers in a row start it at ``w``: with 20 warm-up epochs
    of 300 the rate is a tenth higher midway.)

    ``warmup`` and ``T_max`` are epochs, or iterations with ``by_epoch=False``; with
    ``convert_to_iter_based=True`` in the config they are epochs and the rate changes each
    iteration. After ``end``, by default mmengine's end of the training, the rate stays as it is.
    The value depends on the step alone, so a resumed run continues exactly.
    """

    def __init__(
        self,
        optimizer: Optimizer | OptimWrapper,
        T_max: int,
        warmup: int = 0,
        warmup_ratio: float = 1e-3,
        eta_min_ratio: float = 1e-2,
        end: int = INF,
        last_step: int = -1,
        by_epoch: bool = True,
        verbose: bool = False,
    ) -> None:
        if not 0 <= warmup < T_max:
            raise UserError(
                f"param_scheduler: warmup {warmup}, T_max {T_max}; needed: 0 <= warmup < T_max"
            )
        for name, ratio in (("warmup_ratio", warmup_ratio), ("eta_min_ratio", eta_min_ratio)):
            if not 0.0 <= ratio <= 1.0:
                raise UserError(f"param_scheduler.{name} is {ratio}; allowed: 0 to 1")
        self.T_max = T_max
        self.warmup = warmup
        self.warmup_ratio = warmup_ratio
        self.eta_min_ratio = eta_min_ratio
        super().__init__(
            optimizer, end=end, last_step=last_step, by_epoch=by_epoch, verbose=verbose
        )

    @classmethod
    def build_iter_from_epoch(
        cls,
        optimizer: Optimizer | OptimWrapper,
        T_max: float,
        epoch_length: int,
        warmup: float = 0,
        warmup_ratio: float = 1e-3,
        eta_min_ratio: float = 1e-2,
        end: int = INF,
        last_step: int = -1,
        by_epoch: bool = True,
        verbose: bool = False,
    ) -> WarmupCosineLR:
        """The same schedule stepping each iteration: mmengine's ``convert_to_iter_based``."""
        if not by_epoch:
            raise UserError("param_scheduler: convert_to_iter_based needs by_epoch=True")
        return cls(
            optimizer,
            T_max=int(T_max * epoch_length),
            warmup=int(warmup * epoch_length),
            warmup_ratio=warmup_ratio,
            eta_min_ratio=eta_min_ratio,
            end=end if end == INF else int(end * epoch_length),
            last_step=last_step,
            by_epoch=False,
            verbose=verbose,
        )

    def factor(self, step: int) -> float:
        """The rate at ``step`` as a multiple of the base rate."""
        if step < self.warmup:
            return self.warmup_ratio + (1 - self.warmup_ratio) * step / self.warmup
        if step >= self.T_max:
            return self.eta_min_ratio
        cosine = (1 + math.cos(math.pi * step / self.T_max)) / 2
        return self.eta_min_ratio + (1 - self.eta_min_ratio) * cosine

    def _get_value(self) -> list[float]:
        return [base * self.factor(self.last_step) for base in self.base_values]
