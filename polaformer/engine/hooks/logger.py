"""Plain log lines and scalars for the trackers."""

from __future__ import annotations

from typing import Any

from mmengine.dist import is_main_process
from mmengine.hooks import LoggerHook as _LoggerHook

from polaformer.engine.units import counts_iterations
from polaformer.registry import HOOKS
from polaformer.visualization.measures import line_of

_NOTHING = "nothing could be measured"


def numbers(metrics: dict | None) -> dict[str, float]:
    """The entries of ``metrics`` that are numbers."""
    found: dict[str, float] = {}
    for key, value in (metrics or {}).items():
        value = value.item() if hasattr(value, "item") and getattr(value, "size", 1) == 1 else value
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            found[key] = value
    return found


@HOOKS.register_module()
class LoggerHook(_LoggerHook):
    """mmengine's logger, with validation and test values as they are.

    mmengine averages a validation loss over the last ten validations. Training scalars keep their
    plain names; those of a validation get the prefix ``val/`` in ``scalars.json`` and the trackers.
    """

    def before_train(self, runner: Any) -> None:
        """Continue ``scalars.json`` where the run continues."""
        if hasattr(runner.visualizer, "begin"):
            runner.visualizer.begin(runner.iter)

    def after_train_iter(
        self, runner: Any, batch_idx: int, data_batch: Any = None, outputs: dict | None = None
    ) -> None:
        """Log every ``interval`` steps, and the last step of an epoch shorter than that.

        Where iterations are counted, the last step of the training.
        """
        by_iter = counts_iterations(runner.train_loop)
        length = runner.max_iters if by_iter else len(runner.train_dataloader)
        due = self.every_n_inner_iters(batch_idx, self.interval)
        last = batch_idx + 1 == length
        short = last and (by_iter or not self.ignore_last or length <= self.interval)
        if not (due or short):
            return
        tag, line = runner.log_processor.get_log_after_iter(runner, batch_idx, "train")
        runner.logger.info(line)
        runner.visualizer.add_scalars(tag, step=runner.iter + 1)

    def after_val_epoch(self, runner: Any, metrics: dict | None = None) -> None:
        """Log the metrics of this validation."""
        values = numbers(metrics)
        in_training = not (runner._train_loop is None or isinstance(runner._train_loop, dict))
        place = {"epoch": 0, "iter": 0}
        if in_training:
            place = {"epoch": runner.epoch, "iter": runner.iter}
            if counts_iterations(runner.train_loop):
                place.pop("epoch")
        unit, step = next(iter(place.items()))
        runner.logger.info(f"{unit.title()}(val) [{step}]  {line_of(values) or _NOTHING}")
        scalars: dict[str, float] = {f"val/{key}": value for key, value in values.items()}
        runner.visualizer.add_scalars({**scalars, **place}, step=place["iter"])

    def after_test_epoch(self, runner: Any, metrics: dict | None = None) -> None:
        """Log the metrics of the test."""
        if is_main_process():
            runner.logger.info(f"Test  {line_of(numbers(metrics)) or _NOTHING}")
