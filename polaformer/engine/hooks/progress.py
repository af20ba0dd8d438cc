"""A progress bar where somebody watches, nothing where nobody does."""

from __future__ import annotations

import logging
import sys
from typing import Any

from mmengine.dist import is_main_process
from mmengine.hooks import Hook

from polaformer.engine.units import counts_iterations
from polaformer.registry import HOOKS


class _NoStepLines(logging.Filter):
    """Keeps the lines of single steps off the terminal; the bar shows them."""

    def filter(self, record: logging.LogRecord) -> bool:
        return not record.getMessage().startswith(("Epoch(train)", "Iter(train)"))


@HOOKS.register_module()
class ProgressHook(Hook):
    """One bar for the whole training: epoch or iteration, loss, images per second, time left.

    Only on a terminal. Elsewhere the log has plain lines and this hook does nothing. The log file
    always gets every line.

    Args:
        enabled: True or False instead of asking whether standard output is a terminal.
    """

    priority = "LOW"

    def __init__(self, enabled: bool | None = None) -> None:
        self.enabled = enabled
        self._bar: Any = None
        self._step_filter = _NoStepLines()

    def before_train(self, runner: Any) -> None:
        """Start the bar."""
        watched = sys.stdout.isatty() if self.enabled is None else self.enabled
        if not (watched and is_main_process()):
            return
        from rich import progress

        self._bar = progress.Progress(
            progress.TextColumn("{task.description}"),
            progress.BarColumn(),
            progress.MofNCompleteColumn(),
            progress.TextColumn("{task.fields[note]}"),
            progress.TimeElapsedColumn(),
            progress.TimeRemainingColumn(),
        )
        self._bar.start()
        self._task = self._bar.add_task(
            "training", total=runner.max_iters, completed=runner.iter, note=""
        )
        for handler in _terminal_handlers(runner.logger):
            # The bar replaces sys.stdout while it lives, and prints above itself.
            handler.setStream(sys.stdout)
            handler.addFilter(self._step_filter)

    def after_train_iter(
        self, runner: Any, batch_idx: int, data_batch: Any = None, outputs: dict | None = None
    ) -> None:
        """Move the bar."""
        if self._bar is None:
            return
        scalars = runner.message_hub.log_scalars
        parts = []
        if "train/loss" in scalars:
            parts.append(f"loss {scalars['train/loss'].mean(10):.3f}")
        if "train/images_per_s" in scalars:
            parts.append(f"{scalars['train/images_per_s'].mean(10):.0f} img/s")
        by_iter = counts_iterations(runner.train_loop)
        self._bar.update(
            self._task,
            completed=runner.iter + 1,
            description="iteration" if by_iter else f"epoch {runner.epoch + 1}/{runner.max_epochs}",
            note="  ".join(parts),
        )

    def after_train(self, runner: Any) -> None:
        """Take the bar away."""
        self.close(runner.logger)

    def close(self, logger: logging.Logger) -> None:
        """Take the bar away and give the terminal back to the log."""
        if self._bar is None:
            return
        self._bar.stop()
        self._bar = None
        for handler in _terminal_handlers(logger):
            handler.setStream(sys.stdout)
            handler.removeFilter(self._step_filter)


def _terminal_handlers(logger: logging.Logger) -> list[logging.StreamHandler]:
    return [handler for handler in logger.handlers if type(handler) is logging.StreamHandler]
