"""The training loop by iterations, resumable at any of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from mmengine.dist import get_world_size
from mmengine.runner import BaseLoop, IterBasedTrainLoop
from torch.utils.data import DataLoader

from polaformer.engine.data import InfiniteSampler
from polaformer.errors import UserError
from polaformer.registry import LOOPS


@LOOPS.register_module()
class IterTrainLoop(IterBasedTrainLoop):
    """Train for ``max_iters`` steps over an endless stream; may be continued at any of them.

    An ``EpochSampler`` in the config is made the ``InfiniteSampler`` of the same order. Hooks, log
    lines, schedules and checkpoint names follow the loop and count iterations.

    Args:
        max_iters: steps of the training.
        val_interval: validate every so many iterations, and after the last one.
        val_begin: first iteration after which the model is validated.

    Raises:
        UserError: a number out of its range, or a sampler whose stream ends.
    """

    def __init__(
        self,
        runner: Any,
        dataloader: DataLoader | dict,
        max_iters: int,
        val_interval: int = 1000,
        val_begin: int = 1,
    ) -> None:
        for name, value in (("max_iters", max_iters), ("val_interval", val_interval)):
            if isinstance(value, bool) or value != int(value) or value < 1:
                raise UserError(f"train_cfg.{name} is {value}; allowed: whole numbers from 1 up")
        # mmengine's own would start the loading processes here, before it is known where to begin.
        BaseLoop.__init__(self, runner, _without_end(dataloader))
        self._max_iters, self._max_epochs = int(max_iters), 1
        self._epoch = self._iter = 0
        self.val_interval, self.val_begin = int(val_interval), val_begin
        self.stop_training = False
        self._start_iter = self._start_samples = 0
        if not isinstance(self.dataloader.sampler, InfiniteSampler):
            raise UserError(
                f"IterTrainLoop cannot continue a {type(self.dataloader.sampler).__name__}; use "
                "train_dataloader.sampler=dict(type='polaformer.InfiniteSampler', shuffle=True), "
                "or train by epochs with polaformer.EpochTrainLoop"
            )
        if self.dataloader.batch_size is None:
            raise UserError(
                "IterTrainLoop needs train_dataloader.batch_size; with a batch_sampler nobody "
                "knows where to continue"
            )
        self.runner.visualizer.dataset_meta = getattr(self.dataloader.dataset, "metainfo", None)

    @property
    def global_batch(self) -> int:
        """Images per step over all processes."""
        return (self.dataloader.batch_size or 1) * get_world_size()

    def samples_done(self, epoch: int, iteration: int) -> int:
        """Samples of the stream that are used up after ``iteration`` steps of the run."""
        return self._start_samples + (iteration - self._start_iter) * self.global_batch

    def set_position(self, epoch: int, iteration: int, samples: int) -> None:
        """Continue after ``iteration`` steps and ``samples`` of the stream."""
        self._iter = self._start_iter = iteration
        self._start_samples = samples

    def run(self) -> torch.nn.Module:
        """Train; a validation that the interrupted run still owed comes first."""
        self.runner.call_hook("before_train")
        self.runner.call_hook("before_train_epoch")
        if self._iter > 0:
            self._validate()
        if self._iter < self._max_iters and not self.stop_training:
            self._train()
        self.runner.call_hook("after_train_epoch")
        self.runner.call_hook("after_train")
        return self.runner.model

    def _train(self) -> None:
        self.dataloader.sampler.set_start(self.samples_done(self._epoch, self._iter))
        self.runner.model.train()
        for data_batch in self.dataloader:
            self.run_iter(data_batch)
            if self._validate():
                self.runner.model.train()
            if self._iter >= self._max_iters or self.stop_training:
                break

    def _validate(self) -> bool:
        """Validate once per iteration at which it is due, also across an interruption."""
        hub = self.runner.message_hub
        due = self._iter % self.val_interval == 0 or self._iter == self._max_iters
        if self.runner.val_loop is None or self._iter < self.val_begin or not due:
            return False
        if hub.get_info("validated_iter") == self._iter:
            return False
        # Set before, so that what is saved at the end of the validation already says so.
        hub.update_info("validated_iter", self._iter)
        self.runner.val_loop.run()
        return True


def _without_end(dataloader: Any) -> Any:
    """The config of a loader with an endless sampler in the place of one for epochs."""
    sampler = dataloader.get("sampler") if isinstance(dataloader, Mapping) else None
    if not isinstance(sampler, Mapping) or not str(sampler.get("type")).endswith("EpochSampler"):
        return dataloader
    kept = {key: value for key, value in sampler.items() if key not in ("type", "round_up")}
    return {**dataloader, "sampler": {**kept, "type": "polaformer.InfiniteSampler"}}
