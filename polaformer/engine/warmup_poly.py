"""The learning-rate schedule of the segmentation recipes, in closed form."""

from __future__ import annotations

from mmengine.optim import OptimWrapper
from mmengine.optim.scheduler.lr_scheduler import LRSchedulerMixin
from mmengine.optim.scheduler.param_scheduler import INF, _ParamScheduler
from torch.optim import Optimizer

from polaformer.errors import UserError
from polaformer.registry import PARAM_SCHEDULERS


@PARAM_SCHEDULERS.register_module()
class WarmupPolyLR(LRSchedulerMixin, _ParamScheduler):
    """A power of what is left of the training, with a linear warm-up at the beginning.

    With base rate ``b``, length ``T`` and step ``t``: ``b * ((1 - e) * (1 - t / T) ** power + e)``
    with ``e = eta_min_ratio``, and during the warm-up of ``w`` steps that times
    ``r + (1 - r) t / w`` with ``r = warmup_ratio``. ``w`` is ``warmup_iters``, but at most a tenth
    of ``T``. ``T`` is ``end``, by default mmengine's end of the training in iterations; the value
    depends on the step alone, so a resumed run continues exactly.

    Raises:
        UserError: numbers out of range, no ``end``, or counting in epochs.
    """

    def __init__(
        self,
        optimizer: Optimizer | OptimWrapper,
        power: float = 1.0,
        warmup_iters: int = 1500,
        warmup_ratio: float = 1e-6,
        eta_min_ratio: float = 0.0,
        end: int = INF,
        last_step: int = -1,
        by_epoch: bool = False,
        verbose: bool = False,
    ) -> None:
        if by_epoch:
            raise UserError(
                "param_scheduler: WarmupPolyLR counts iterations; needed: by_epoch=False"
            )
        if end == INF:
            raise UserError(
                "param_scheduler: WarmupPolyLR needs the length of the training, in "
                "train_cfg.max_iters or as param_scheduler.end"
            )
        for name, ratio in (("warmup_ratio", warmup_ratio), ("eta_min_ratio", eta_min_ratio)):
            if not 0.0 <= ratio <= 1.0:
                raise UserError(f"param_scheduler.{name} is {ratio}; allowed: 0 to 1")
        if power <= 0:
            raise UserError(f"param_scheduler.power is {power}; allowed: more than 0")
        if warmup_iters < 0:
            raise UserError(f"param_scheduler.warmup_iters is {warmup_iters}; allowed: 0 and more")
        self.power = power
        self.warmup = min(warmup_iters, end // 10)
        self.warmup_ratio = warmup_ratio
        self.eta_min_ratio = eta_min_ratio
        self.length = end
        super().__init__(
            optimizer, end=end, last_step=last_step, by_epoch=by_epoch, verbose=verbose
        )

    @classmethod
    def build_iter_from_epoch(
        cls,
        optimizer: Optimizer | OptimWrapper,
        epoch_length: int,
        power: float = 1.0,
        warmup_iters: int = 1500,
        warmup_ratio: float = 1e-6,
        eta_min_ratio: float = 0.0,
        end: int = INF,
        last_step: int = -1,
        by_epoch: bool = True,
        verbose: bool = False,
    ) -> WarmupPolyLR:
        """The schedule with ``end`` in epochs: mmengine's ``convert_to_iter_based``."""
        return cls(
            optimizer,
            power=power,
            warmup_iters=warmup_iters,
            warmup_ratio=warmup_ratio,
            eta_min_ratio=eta_min_ratio,
            end=end if end == INF else int(end * epoch_length),
            last_step=last_step,
            verbose=verbose,
        )

    def factor(self, step: int) -> float:
        """The rate at ``step`` as a multiple of the base rate."""
        left = 1 - step / self.length
        fall = (1 - self.eta_min_ratio) * left**self.power + self.eta_min_ratio
        if step < self.warmup:
            fall *= self.warmup_ratio + (1 - self.warmup_ratio) * step / self.warmup
        return fall

    def _get_value(self) -> list[float]:
        return [base * self.factor(self.last_step) for base in self.base_values]
