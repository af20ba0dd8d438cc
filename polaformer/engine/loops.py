"""The training loop by epochs, resumable at any iteration, and evaluation under autocast."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import mmengine.runner.amp as amp_module
import torch
from mmengine.dist import broadcast, get_world_size, is_distributed
from mmengine.evaluator import Evaluator
from mmengine.hooks import EMAHook
from mmengine.runner import EpochBasedTrainLoop
from mmengine.runner import TestLoop as _TestLoop
from mmengine.runner import ValLoop as _ValLoop
from torch.utils.data import DataLoader

from polaformer.engine.data import InfiniteSampler
from polaformer.engine.state import unwrapped
from polaformer.errors import UserError
from polaformer.registry import LOOPS

AMP_DTYPES = {
    "bf16": torch.bfloat16,
    "fp16": torch.float16,
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
}


@LOOPS.register_module()
class EpochTrainLoop(EpochBasedTrainLoop):
    """Train for ``max_epochs``; a run may be continued in the middle of an epoch.

    Args:
        val_begin: first epoch after which the model is validated.
        val_interval: validate every so many epochs, and after the last one.

    Raises:
        UserError: an epoch without a single batch, or without an end.
    """

    def __init__(
        self,
        runner: Any,
        dataloader: DataLoader | dict,
        max_epochs: int,
        val_begin: int = 1,
        val_interval: int = 1,
        dynamic_intervals: list[tuple[int, int]] | None = None,
    ) -> None:
        super().__init__(runner, dataloader, max_epochs, val_begin, val_interval, dynamic_intervals)
        _refuse_endless(self.dataloader, "train", "or count iterations: polaformer.IterTrainLoop")
        if hasattr(self.dataloader.sampler, "set_even"):
            self.dataloader.sampler.set_even(True)
            self._max_iters = self._max_epochs * len(self.dataloader)
        if len(self.dataloader) == 0:
            raise UserError(self._empty_message())
        self.epoch_start_iter = 0
        self._skip_samples = 0

    def _empty_message(self) -> str:
        images, batch = len(self.dataloader.dataset), self.dataloader.batch_size
        return (
            f"train_dataloader has no batch: {images} images, batch_size={batch} on "
            f"{get_world_size()} process(es) and drop_last={self.dataloader.drop_last}; set "
            f"train_dataloader.drop_last=False or a batch_size of at most "
            f"{max(images // get_world_size(), 1)}"
        )

    @property
    def global_batch(self) -> int:
        """Images per step over all processes."""
        return (self.dataloader.batch_size or 1) * get_world_size()

    def samples_done(self, epoch: int, iteration: int) -> int:
        """Samples of ``epoch`` that are used up after ``iteration`` steps of the run."""
        if epoch != self._epoch:
            return 0
        return (iteration - self.epoch_start_iter) * self.global_batch

    def set_position(self, epoch: int, iteration: int, samples: int) -> None:
        """Continue in ``epoch`` after ``samples`` of it, ``iteration`` steps into the run."""
        self._epoch, self._iter = epoch, iteration
        self._skip_samples = samples
        self.epoch_start_iter = iteration - -(-samples // self.global_batch)

    def run(self) -> torch.nn.Module:
        """Train; a validation that the interrupted run still owed comes first."""
        self.runner.call_hook("before_train")
        if self._epoch > 0 and self._skip_samples == 0:
            self._decide_current_val_interval()
            self._validate()
        while self._epoch < self._max_epochs and not self.stop_training:
            self.run_epoch()
            self._decide_current_val_interval()
            self._validate()
        self.runner.call_hook("after_train")
        return self.runner.model

    def run_epoch(self) -> None:
        """One epoch, or what is left of it."""
        samples, self._skip_samples = self._skip_samples, 0
        self.epoch_start_iter = self._iter - -(-samples // self.global_batch)
        self.runner.call_hook("before_train_epoch")
        self.runner.model.train()
        if samples:
            self._sampler_from(samples)
        for idx, data_batch in enumerate(self.dataloader, self._iter - self.epoch_start_iter):
            self.run_iter(idx, data_batch)
        self.runner.call_hook("after_train_epoch")
        self._epoch += 1
        self.epoch_start_iter = self._iter

    def _sampler_from(self, samples: int) -> None:
        sampler = self.dataloader.sampler
        if not hasattr(sampler, "set_start"):
            raise UserError(
                f"{type(sampler).__name__} cannot continue in the middle of an epoch; use "
                "train_dataloader.sampler=dict(type='polaformer.EpochSampler', shuffle=True), or "
                "resume from a checkpoint that was written at the end of an epoch"
            )
        sampler.set_start(samples)

    def _validate(self) -> None:
        """Validate once per epoch in which it is due, also across an interruption."""
        hub = self.runner.message_hub
        due = self._epoch % self.val_interval == 0 or self._epoch == self._max_epochs
        if self.runner.val_loop is None or self._epoch < self.val_begin or not due:
            return
        if hub.get_info("validated_epoch") == self._epoch:
            return
        # Set before, so that what is saved at the end of the validation already says so.
        hub.update_info("validated_epoch", self._epoch)
        self.runner.val_loop.run()


def _refuse_endless(dataloader: DataLoader, stage: str, hint: str) -> None:
    if isinstance(dataloader.sampler, InfiniteSampler):
        raise UserError(
            f"{stage}_dataloader.sampler: the stream of an InfiniteSampler has no end; use "
            f"polaformer.EpochSampler ({hint})"
        )


def share_buffers(runner: Any) -> None:
    """Give every process the first one's stored buffers of the model and of its average.

    Each process updates the running statistics of batch norm by its own images.
    """
    if not is_distributed():
        return
    modules = [unwrapped(runner.model)]
    modules += [hook.ema_model for hook in runner.hooks if isinstance(hook, EMAHook)]
    for module in modules:
        trained = {name for name, _ in module.named_parameters()}
        for name, value in module.state_dict().items():
            if name not in trained and isinstance(value, torch.Tensor):
                broadcast(value)


def training_amp(cfg: Mapping[str, Any]) -> str | None:
    """The half type in which a config trains, or None for fp32."""
    wrapper = cfg.get("optim_wrapper") or {}
    kind = str(wrapper.get("type", "")).rsplit(".", 1)[-1]
    return (wrapper.get("dtype") or "float16") if kind == "AmpOptimWrapper" else None


def evaluation_dtype(runner: Any, amp: str | None) -> torch.dtype | None:
    """The half type to evaluate in, or None for fp32; 'auto' is that of the training config."""
    if amp == "auto":
        amp = training_amp(runner.cfg)
    if amp is None or amp == "float32":
        return None
    if amp not in AMP_DTYPES:
        raise UserError(f"amp={amp!r} in an evaluation loop; allowed: 'auto', 'bf16', 'fp16', None")
    return AMP_DTYPES[amp]


class _Evaluation:
    """What validating and testing share, mixed into mmengine's loops: one batch, in a half type."""

    stage: str
    runner: Any
    evaluator: Any

    def __init__(
        self,
        runner: Any,
        dataloader: DataLoader | dict,
        evaluator: Evaluator | dict | list,
        amp: str | None = "auto",
    ) -> None:
        super().__init__(runner, dataloader, evaluator)  # type: ignore[call-arg]
        _refuse_endless(self.dataloader, self.stage, "every sample counts once")  # type: ignore[attr-defined]
        self.dtype = evaluation_dtype(runner, amp)

    @torch.no_grad()
    def run_iter(self, idx: int, data_batch: Sequence[dict]) -> None:
        """Predict one batch and hand it to the metrics."""
        batch = {"batch_idx": idx, "data_batch": data_batch}
        self.runner.call_hook(f"before_{self.stage}_iter", **batch)
        with amp_module.autocast(dtype=self.dtype, enabled=self.dtype is not None):
            outputs = getattr(self.runner.model, f"{self.stage}_step")(data_batch)
        self.evaluator.process(data_samples=outputs, data_batch=data_batch)
        self.runner.call_hook(f"after_{self.stage}_iter", **batch, outputs=outputs)


@LOOPS.register_module()
class ValLoop(_Evaluation, _ValLoop):
    """Validate; ``amp`` is 'auto' (as in training), 'bf16', 'fp16' or None.

    All processes take the running statistics of the first one, which are what a checkpoint holds.
    """

    stage = "val"

    def run(self) -> dict[str, Any]:
        """Validate and return the metrics."""
        share_buffers(self.runner)
        return super().run()


@LOOPS.register_module()
class TestLoop(_Evaluation, _TestLoop):
    """Test; ``amp`` as in ``ValLoop``. The metrics keep what they write of each sample."""

    __test__ = False  # the name is mmengine's; this is no test case
    stage = "test"

    def run(self) -> dict[str, Any]:
        """Test and return the metrics."""
        for metric in self.evaluator.metrics:
            metric.testing = True
        return super().run()
