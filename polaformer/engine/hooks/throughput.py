"""Images per second, peak memory and the share of time spent waiting for data."""

from __future__ import annotations

import sys
import time
from typing import Any

import torch
from mmengine.device import get_device
from mmengine.dist import get_world_size
from mmengine.hooks import Hook, IterTimerHook

from polaformer.registry import HOOKS

MIB = 2**20


def peak_memory_mib() -> float:
    """Peak memory in MiB: of the CUDA device, or resident memory of this process on a CPU."""
    if get_device() == "cuda":
        return torch.cuda.max_memory_allocated() / MIB
    try:
        import resource
    except ImportError:  # Windows
        return float("nan")
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / MIB if sys.platform == "darwin" else peak / 1024


@HOOKS.register_module()
class ThroughputHook(Hook):
    """Log ``images_per_s`` (over all processes), ``data_share`` (0 to 1) and ``peak_mib``.

    Comes after mmengine's timer, whose times it uses, and before the logger.
    """

    priority = 55

    def before_train(self, runner: Any) -> None:
        """Start the sums of this start of the run."""
        self.images, self.seconds, self.data_seconds = 0, 0.0, 0.0

    def after_train_iter(
        self, runner: Any, batch_idx: int, data_batch: Any = None, outputs: dict | None = None
    ) -> None:
        """Add the step."""
        hub = runner.message_hub
        seconds = hub.get_scalar("train/time").current()
        data_seconds = hub.get_scalar("train/data_time").current()
        images = batch_length(data_batch, runner.train_dataloader.batch_size) * get_world_size()
        self.images += images
        self.seconds += seconds
        self.data_seconds += data_seconds
        values = {
            "images_per_s": images / max(seconds, 1e-9),
            "data_share": data_seconds / max(seconds, 1e-9),
            "peak_mib": peak_memory_mib(),
        }
        for name, value in values.items():
            hub.update_scalar(f"train/{name}", value, resumed=False)

    def after_val(self, runner: Any) -> None:
        """Keep what a validation did at its end out of the next step's time."""
        for hook in runner.hooks:
            if isinstance(hook, IterTimerHook):
                hook.t = time.time()

    def after_train(self, runner: Any) -> None:
        """Say the averages of this start of the run."""
        if self.images:
            runner.logger.info(
                f"{self.images / max(self.seconds, 1e-9):.1f} images/s in training, "
                f"{self.data_seconds / max(self.seconds, 1e-9):.0%} of the time waiting for data, "
                f"peak memory {peak_memory_mib():.0f} MiB"
            )


def batch_length(data_batch: Any, default: int | None) -> int:
    """How many samples a batch holds."""
    inputs = data_batch.get("inputs") if isinstance(data_batch, dict) else None
    return len(inputs) if inputs is not None else (default or 1)
