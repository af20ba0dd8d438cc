"""A polite end: save at the next step, then stop."""

from __future__ import annotations

import os
import signal
import threading
import time
from typing import Any

import torch
from mmengine.device import get_device
from mmengine.dist import all_reduce, get_world_size, is_main_process
from mmengine.hooks import Hook

from polaformer.engine.hooks.checkpoint import LEFTOVERS, write_last
from polaformer.engine.hooks.health import BAD_STEPS, LAST_GOOD
from polaformer.registry import HOOKS

GRACE_SECONDS = 5.0
"""A repeat this soon is no second wish: torchrun and batch systems forward the first signal."""


class Interrupted(KeyboardInterrupt):
    """The run was asked to stop and has saved itself; the message says where."""


@HOOKS.register_module()
class InterruptHook(Hook):
    """On SIGTERM or the first Ctrl-C write ``iter_N.pth`` after the running step and stop.

    A second Ctrl-C stops at once, unless it comes with the first; SIGTERM never does, for who wants
    that has SIGKILL. With several processes they agree every ``interval`` steps.
    """

    priority = "LOWEST"

    def __init__(self, interval: int = 10) -> None:
        self.interval = interval
        self._asked: int | None = None
        self._since = 0.0
        self._ended = False
        self._previous: dict[int, Any] = {}

    def before_train(self, runner: Any) -> None:
        """Listen for the signals; only the main thread may."""
        self._asked, self._ended = None, False
        if threading.current_thread() is not threading.main_thread():
            return
        for number in (signal.SIGTERM, signal.SIGINT):
            self._previous[number] = signal.signal(number, self._ask)

    def _ask(self, number: int, frame: Any) -> None:
        if self._asked is None:
            self._asked, self._since = number, time.monotonic()
            os.write(2, b"\nstopping after this step; Ctrl-C again in 5 s stops at once\n")
            return
        late = time.monotonic() - self._since >= GRACE_SECONDS
        if late and (self._ended or number == signal.SIGINT):
            self._restore()
            signal.raise_signal(number)

    def _restore(self) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)
        self._previous = {}

    def after_train(self, runner: Any) -> None:
        """Stop listening."""
        self._restore()

    def after_train_iter(
        self, runner: Any, batch_idx: int, data_batch: Any = None, outputs: dict | None = None
    ) -> None:
        """Save and stop if a signal has come; while steps are not finite nothing is saved."""
        if not self._agreed(runner):
            return
        if runner.message_hub.get_info(BAD_STEPS, 0):
            self._ended = True
            raise Interrupted(
                f"stopped after iteration {runner.iter + 1}; not saved, as the last steps were not "
                "finite"
            )
        path = self._save(runner, f"iter_{runner.iter + 1}.pth")
        # Not restored yet: a late repeat would break off the closing of trackers and run card.
        self._ended = True
        raise Interrupted(f"stopped after iteration {runner.iter + 1}, saved in {path}")

    def _save(self, runner: Any, name: str) -> str:
        """Save what is not saved yet; the next regular checkpoint takes the place of the file."""
        path = os.path.join(runner.work_dir, name)
        hub = runner.message_hub
        if hub.get_info(LAST_GOOD) == path and os.path.isfile(path):
            return path
        hub.update_info(LEFTOVERS, sorted({*hub.get_info(LEFTOVERS, []), name}))
        runner.save_checkpoint(runner.work_dir, name, by_epoch=False)
        if is_main_process():
            write_last(runner.work_dir, path)
        return path

    def _agreed(self, runner: Any) -> bool:
        if get_world_size() == 1:
            return self._asked is not None
        if (runner.iter + 1) % self.interval:
            return False
        asked = torch.tensor(float(self._asked is not None), device=get_device())
        all_reduce(asked, "max")
        return bool(asked)
