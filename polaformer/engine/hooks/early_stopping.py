"""Early stopping that survives an interruption."""

from __future__ import annotations

from typing import Any

from mmengine.hooks import EarlyStoppingHook as _EarlyStoppingHook

from polaformer.registry import HOOKS

KEY = "early_stopping"


@HOOKS.register_module()
class EarlyStoppingHook(_EarlyStoppingHook):
    """mmengine's hook; its best score and patience are part of the checkpoint.

    It acts before the checkpoint hook, so a checkpoint written after a validation holds the
    verdict on it.
    """

    priority = "LOW"

    def before_train(self, runner: Any) -> None:
        """Take over the state of the run that is continued."""
        state = runner.message_hub.get_info(KEY)
        if state is not None:
            self.best_score, self.wait_count = state["best_score"], state["wait_count"]
            runner.train_loop.stop_training = state["stopped"]
            if state["stopped"]:
                runner.logger.warning("already finished: the run had been stopped early")

    def after_val_epoch(self, runner: Any, metrics: dict | None = None) -> None:
        """Judge the validation and note the state for the checkpoint."""
        super().after_val_epoch(runner, metrics)
        state = {
            "best_score": float(self.best_score),
            "wait_count": int(self.wait_count),
            "stopped": bool(runner.train_loop.stop_training),
        }
        runner.message_hub.update_info(KEY, state)
