"""Which checkpoints are kept; what is worse never takes the place of what is there."""

from __future__ import annotations

import math
import os
from collections import deque
from collections.abc import Sequence
from typing import Any

import torch
from mmengine.dist import is_main_process
from mmengine.fileio import get_file_backend
from mmengine.hooks import CheckpointHook as _CheckpointHook
from mmengine.hooks import EMAHook

from polaformer.engine.hooks.health import BAD_STEPS, LAST_GOOD
from polaformer.engine.state import unwrapped
from polaformer.engine.units import counts_iterations
from polaformer.registry import HOOKS

LEFTOVERS = "interrupt_files"
"""Where the message hub keeps the names of files that interruptions of this run have written."""


def not_finite(module: torch.nn.Module) -> list[str]:
    """The names of parameters and buffers that hold a value which is not finite."""
    return [
        name
        for name, value in module.state_dict().items()
        if value.is_floating_point() and not torch.isfinite(value).all()
    ]


@HOOKS.register_module()
class CheckpointHook(_CheckpointHook):
    """mmengine's hook with guards, and a checkpoint that knows its validation.

    Weights that are not finite, or give steps that are not (``HealthHook``), are not stored. An old
    checkpoint, or the best one so far, is removed after its successor is safely on disk, not
    before. A validation with a loss or score that is not finite is never the best.
    ``save_best='auto'`` follows the first key that the evaluator returns.

    Args:
        interval: save every so many epochs or iterations, -1 for never; by default each epoch, or
            where iterations are counted each ``val_interval``. The end is saved in any case.
        by_epoch: count epochs; by default what the training loop counts. Other arguments are
            mmengine's.
    """

    out_dir: str | None
    _saves = 0
    _saved_at: int | None = None
    _good_before: str | None = None

    def __init__(
        self,
        interval: int | None = None,
        by_epoch: bool | None = None,
        save_optimizer: bool = True,
        save_param_scheduler: bool = True,
        out_dir: str | None = None,
        max_keep_ckpts: int = -1,
        save_last: bool = True,
        save_best: str | list[str] | None = None,
        rule: str | list[str] | None = None,
        greater_keys: Sequence[str] | None = None,
        less_keys: Sequence[str] | None = None,
        filename_tmpl: str | None = None,
        save_begin: int = 0,
    ) -> None:
        super().__init__(
            interval=-1 if interval is None else interval,
            by_epoch=by_epoch is not False,
            save_optimizer=save_optimizer,
            save_param_scheduler=save_param_scheduler,
            out_dir=out_dir,
            max_keep_ckpts=max_keep_ckpts,
            save_last=save_last,
            save_best=save_best,
            rule=rule,
            greater_keys=greater_keys,
            less_keys=less_keys,
            filename_tmpl=filename_tmpl,
            save_begin=save_begin,
        )
        self._follows = by_epoch is None, interval is None, filename_tmpl is None

    def _follow(self, loop: Any) -> None:
        """Take unit, interval and names from the training loop where the config leaves them."""
        unit, interval, name = self._follows
        if unit:
            self.by_epoch = not counts_iterations(loop)
        if interval:
            self.interval = 1 if self.by_epoch else getattr(loop, "val_interval", -1)
        if name:
            self.filename_tmpl = "epoch_{}.pth" if self.by_epoch else "iter_{}.pth"

    def before_train(self, runner: Any) -> None:
        """Find the best checkpoint of an earlier start again, also if the folder was moved."""
        self._follow(runner.train_loop)
        folder = runner.work_dir if self.out_dir is None else self.out_dir
        if folder != runner.work_dir:
            folder = os.path.join(folder, os.path.basename(os.path.normpath(runner.work_dir)))
        os.makedirs(folder, exist_ok=True)
        self.out_dir = folder
        self.file_backend = get_file_backend(folder)
        hub = runner.message_hub
        if self.max_keep_ckpts > 0:
            kept = hub.get_info("keep_ckpt_ids", [])
            self.keep_ckpt_ids = deque(kept[-self.max_keep_ckpts :], self.max_keep_ckpts)
        if self.save_best:
            keys = self.key_indicators
            names = ["best_ckpt"] if len(keys) == 1 else [f"best_ckpt_{key}" for key in keys]
            paths = [_found_in(folder, hub.get_info(name)) for name in names]
            self._set_best_paths(dict(zip(keys, paths, strict=True)))
        self._continue_from(runner, getattr(runner, "resume_source", None))

    def _continue_from(self, runner: Any, source: str | None) -> None:
        """Take the file of the run that is continued for the newest one.

        Files that an interruption wrote into this folder are of no use after the next regular one.
        """
        hub = runner.message_hub
        folder = os.path.realpath(os.path.dirname(source)) if source is not None else None
        own = folder == os.path.realpath(runner.work_dir)
        leftovers = set(hub.get_info(LEFTOVERS, [])) if own else set()
        if source is not None:
            self._saved_at, self.last_ckpt = runner.iter, source
            if not hub.get_info(BAD_STEPS, 0):
                hub.update_info(LAST_GOOD, source)
            name = os.path.basename(source)
            if own and self.by_epoch and name.startswith("iter_"):
                leftovers.add(name)
        hub.update_info(LEFTOVERS, sorted(leftovers))

    def after_val_epoch(self, runner: Any, metrics: dict | None = None) -> None:
        """Store the best, then what is known now in the newest checkpoint too.

        A run that continues from it need not validate again. Outside of training there is nothing
        to store.
        """
        if not hasattr(self, "file_backend"):
            return
        broken = _broken_values(runner, metrics or {})
        if broken:
            self._disown(runner, ", ".join(broken))
            return
        saves = self._saves
        super().after_val_epoch(runner, metrics or {})
        if self._saved_at == runner.iter and self._saves == saves:
            step = runner.epoch if self.by_epoch else runner.iter
            meta = {"epoch": runner.epoch, "iter": runner.iter}
            self._save_checkpoint_with_step(runner, step, meta)

    def after_train(self, runner: Any) -> None:
        """Where iterations are counted, save a run that was stopped early where it stopped."""
        stopped = getattr(runner.train_loop, "stop_training", False)
        if stopped and not self.by_epoch and self.save_last and self._saved_at != runner.iter:
            meta = {"epoch": runner.epoch, "iter": runner.iter}
            self._save_checkpoint_with_step(runner, runner.iter, meta)
        super().after_train(runner)

    def _disown(self, runner: Any, broken: str) -> None:
        """What was stored right before a validation that failed does not count as good."""
        text = f"no best checkpoint: {broken} is not finite in this validation"
        if self._saved_at == runner.iter and self.last_ckpt:
            text += f"; {os.path.basename(self.last_ckpt)} holds the weights that gave it"
            runner.message_hub.update_info(LAST_GOOD, self._good_before)
        runner.logger.warning(text)

    def _weights_good(self, runner: Any) -> bool:
        bad_steps = runner.message_hub.get_info(BAD_STEPS, 0)
        if bad_steps:
            runner.logger.warning(
                f"no checkpoint at iteration {runner.iter}: the last {bad_steps} steps were not "
                "finite"
            )
            return False
        modules = [unwrapped(runner.model)]
        modules += [hook.ema_model for hook in runner.hooks if isinstance(hook, EMAHook)]
        bad = [name for module in modules for name in not_finite(module)]
        if bad:
            runner.logger.warning(
                f"no checkpoint at iteration {runner.iter}: {len(bad)} weights are not finite, "
                f"for example {bad[0]}"
            )
        return not bad

    def _save_checkpoint_with_step(self, runner: Any, step: int, meta: dict) -> None:
        if not self._weights_good(runner):
            return
        stale = self._rotate(runner, step)
        leftovers = runner.message_hub.get_info(LEFTOVERS, [])
        stale += [os.path.join(runner.work_dir, name) for name in leftovers]
        runner.message_hub.update_info(LEFTOVERS, [])
        filename = self.filename_tmpl.format(step)
        self.last_ckpt = self.file_backend.join_path(self.out_dir, filename)
        if self._saved_at != meta["iter"]:
            self._good_before = runner.message_hub.get_info(LAST_GOOD)
        runner.message_hub.update_info(LAST_GOOD, self.last_ckpt)
        runner.save_checkpoint(
            self.out_dir,
            filename,
            save_optimizer=self.save_optimizer,
            save_param_scheduler=self.save_param_scheduler,
            meta=meta,
            by_epoch=self.by_epoch,
        )
        self._saves += 1
        self._saved_at = meta["iter"]
        if is_main_process():
            write_last(runner.work_dir, self.last_ckpt)
            _remove([path for path in stale if os.path.basename(path) != filename])

    def _rotate(self, runner: Any, step: int) -> list[str]:
        """Note ``step`` as kept; returns the files that are one too many then."""
        if self.max_keep_ckpts <= 0 or step in self.keep_ckpt_ids:
            return []
        steps = [*self.keep_ckpt_ids, step]
        kept = steps[-self.max_keep_ckpts :]
        self.keep_ckpt_ids.clear()
        self.keep_ckpt_ids.extend(kept)
        runner.message_hub.update_info("keep_ckpt_ids", kept)
        names = [self.filename_tmpl.format(old) for old in steps if old not in kept]
        return [os.path.join(str(self.out_dir), name) for name in names]

    def _save_best_checkpoint(self, runner: Any, metrics: dict) -> None:
        if not self.save_best or not metrics or not self._weights_good(runner):
            return
        if "auto" in self.key_indicators:
            self._init_rule(self.rules, [next(iter(metrics))])
        missing = [key for key in self.key_indicators if key not in metrics]
        if missing:
            runner.logger.warning(
                f"no best checkpoint: this validation gave no {', '.join(missing)}, only "
                f"{', '.join(metrics)}"
            )
            return
        before = self._best_paths()
        self._set_best_paths(dict.fromkeys(before))
        super()._save_best_checkpoint(runner, metrics)
        after = self._best_paths()
        self._set_best_paths({key: after[key] or before[key] for key in before})
        if is_main_process():
            replaced = [key for key in before if after[key] and before[key] != after[key]]
            _remove([path for key in replaced if (path := before[key]) is not None])

    def _best_paths(self) -> dict[str, str | None]:
        if len(self.key_indicators) == 1:
            return {self.key_indicators[0]: self.best_ckpt_path}
        return {key: self.best_ckpt_path_dict.get(key) for key in self.key_indicators}

    def _set_best_paths(self, paths: dict[str, str | None]) -> None:
        if len(self.key_indicators) == 1:
            self.best_ckpt_path = next(iter(paths.values()))
        else:
            self.best_ckpt_path_dict = dict(paths)


def _broken_values(runner: Any, metrics: dict[str, Any]) -> list[str]:
    """What a validation gave that is not finite: losses, metrics, scores of single samples."""
    broken = [
        key
        for key, value in metrics.items()
        if isinstance(value, float) and not math.isfinite(value)
    ]
    for metric in runner.val_loop.evaluator.metrics if runner.val_loop else ():
        count = (getattr(metric, "last", None) or {}).get("non_finite")
        broken += [f"scores ({count} samples)"] if count else []
    return broken


def _found_in(folder: str, path: str | None) -> str | None:
    """A checkpoint that a hub remembers, if it is in ``folder``; a file elsewhere is not ours."""
    place = os.path.join(folder, os.path.basename(path)) if path else ""
    return place if os.path.isfile(place) else None


def write_last(work_dir: str, path: str) -> None:
    """Name the newest checkpoint in ``last_checkpoint``, atomically."""
    target = os.path.join(work_dir, "last_checkpoint")
    with open(f"{target}.tmp", "w", encoding="utf-8") as stream:
        stream.write(path)
    os.replace(f"{target}.tmp", target)


def _remove(paths: list[str]) -> None:
    for path in paths:
        if os.path.isfile(path):
            os.remove(path)
