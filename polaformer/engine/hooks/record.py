"""Keep the run card of the work folder."""

from __future__ import annotations

from typing import Any

from mmengine.device import get_device
from mmengine.dist import is_main_process
from mmengine.hooks import Hook

from polaformer.engine.hooks.logger import numbers
from polaformer.engine.run_card import RunCard, describe_data
from polaformer.engine.state import config_hash, versions
from polaformer.engine.units import counts_iterations
from polaformer.registry import HOOKS


@HOOKS.register_module()
class RunCardHook(Hook):
    """Write ``run_card.json``: what ran, from which code and data, when, and how it ended."""

    priority = "LOW"

    def before_train(self, runner: Any) -> None:
        """Open the card, or continue the one of a resumed run."""
        if not is_main_process():
            return
        self.card = RunCard(runner.work_dir)
        data = {"train": runner.data_facts}
        if runner.val_loop is not None:
            data["val"] = describe_data(runner.val_dataloader.dataset)
        facts = {
            "name": runner.experiment_name,
            "config": runner.cfg.filename,
            "config_hash": config_hash(runner.cfg.to_dict()),
            "seed": runner.seed,
            "deterministic": runner.deterministic,
            "device": get_device(),
            "processes": runner.world_size,
            "versions": versions(),
            "data": data,
        }
        self.card.start(
            facts,
            resumed_from=getattr(runner, "resume_source", None),
            epoch=runner.epoch,
            iteration=runner.iter,
        )

    def after_val_epoch(self, runner: Any, metrics: dict | None = None) -> None:
        """Note the newest metrics."""
        if hasattr(self, "card"):
            by_iter = counts_iterations(runner.train_loop)
            place = {"iter": runner.iter} if by_iter else {"epoch": runner.epoch}
            self.card.update(metrics={**place, **numbers(metrics)})

    def after_train(self, runner: Any) -> None:
        """Close the card."""
        if hasattr(self, "card"):
            self.card.finish("finished", epoch=runner.epoch, iteration=runner.iter)
