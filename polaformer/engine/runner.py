"""mmengine's Runner with safe atomic checkpoints, exact resume and one flat work folder."""

from __future__ import annotations

import copy
import os
from collections.abc import Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import torch
from mmengine.device import get_device
from mmengine.dist import barrier, master_only
from mmengine.hooks import Hook
from mmengine.model import (
    MMDistributedDataParallel,
    convert_sync_batchnorm,
    is_model_wrapper,
)
from mmengine.registry import DATASETS
from mmengine.runner import Runner as _Runner
from torch.utils.data import DataLoader

from polaformer import compat
from polaformer.checkpoint.errors import CheckpointError
from polaformer.checkpoint.io import LoadReport, newest_valid, read_checkpoint, write_checkpoint
from polaformer.checkpoint.loading import surplus_text
from polaformer.engine import batch_norm, state
from polaformer.engine.data import SeededDataset, start_worker
from polaformer.engine.run_card import describe_data
from polaformer.engine.units import counts_iterations, with_unit
from polaformer.engine.weights import load_pretrained, load_start, take_pretrained
from polaformer.errors import UserError
from polaformer.registry import RUNNERS

compat.apply_runtime()

DEFAULT_HOOKS: dict[str, dict[str, Any]] = {
    "runtime_info": {"type": "RuntimeInfoHook"},
    "timer": {"type": "IterTimerHook"},
    "sampler_seed": {"type": "DistSamplerSeedHook"},
    "step_seed": {"type": "polaformer.StepSeedHook"},
    "health": {"type": "polaformer.HealthHook"},
    "throughput": {"type": "polaformer.ThroughputHook"},
    "logger": {"type": "polaformer.LoggerHook"},
    "progress": {"type": "polaformer.ProgressHook"},
    "param_scheduler": {"type": "ParamSchedulerHook"},
    "run_card": {"type": "polaformer.RunCardHook"},
    "pictures": {"type": "polaformer.PictureHook"},
    "checkpoint": {"type": "polaformer.CheckpointHook"},
    "interrupt": {"type": "polaformer.InterruptHook"},
}

_starts: dict[str, int] = {}
"""How many runs this process has started in each second."""


@RUNNERS.register_module()
class Runner(_Runner):
    """Train, validate and test from a config.

    What differs from mmengine's: checkpoints hold plain containers only, are written atomically and
    continue a run exactly, also in the middle of an epoch; weights are read through
    ``checkpoint.io`` with a report in the log; logs lie directly in ``work_dir``; the default hooks
    are ``DEFAULT_HOOKS`` (``default_hooks=dict(health=None)`` takes one out).

    ``resume=True`` with ``load_from`` continues from that file, without it from the newest whole
    checkpoint of ``work_dir``. ``resume='auto'`` prefers ``work_dir`` and takes ``load_from`` for
    starting weights when there is nothing to continue.
    """

    resume_source: str | None = None
    _has_loaded: bool
    _randomness_cfg: dict[str, Any]
    _timestamp: str
    _whole_model = False

    @property
    def _log_dir(self) -> str:
        """Where logs go: the work folder itself."""
        return self._work_dir

    @_log_dir.setter
    def _log_dir(self, value: str) -> None:
        """mmengine sets a folder named by the time; it is not wanted."""

    @cached_property
    def config_text(self) -> str:
        """The config as Python text; made once, because formatting is slow."""
        return self.cfg.pretty_text

    @cached_property
    def data_facts(self) -> dict[str, Any]:
        """Size, classes and fingerprint of the training data; made once, for files are read."""
        return describe_data(self.train_dataloader.dataset)

    def setup_env(self, env_cfg: dict) -> None:
        """As mmengine's; two runs of one process never share a name, and so no log or scalars."""
        super().setup_env(env_cfg)
        count = _starts.get(self._timestamp, 0)
        _starts[self._timestamp] = count + 1
        if count:
            self._timestamp = f"{self._timestamp}_{count}"

    def build_visualizer(self, visualizer: Any = None) -> Any:
        """The trackers; scalars always go to ``scalars.json`` in the work folder."""
        if visualizer is None or isinstance(visualizer, dict):
            kind = {"type": "polaformer.Visualizer"}
            visualizer = {**kind, **(visualizer or {}), "save_dir": self.work_dir}
        return super().build_visualizer(visualizer)

    @staticmethod
    def build_dataloader(
        dataloader: DataLoader | dict, seed: int | None = None, diff_rank_seed: bool = False
    ) -> DataLoader:
        """As mmengine's; a dataset under a sampler of ours gets its random numbers from it."""
        if isinstance(dataloader, dict):
            dataloader = copy.deepcopy(dataloader)
            sampler = dataloader.get("sampler")
            kind = str(sampler.get("type", "")) if isinstance(sampler, dict) else ""
            if (
                kind.endswith(("EpochSampler", "InfiniteSampler"))
                and "num_batch_per_epoch" not in dataloader
            ):
                dataset = dataloader["dataset"]
                if isinstance(dataset, dict):
                    dataset = DATASETS.build(dataset)
                    if hasattr(dataset, "full_init"):
                        dataset.full_init()
                dataloader["dataset"] = SeededDataset(dataset)
        loader = _Runner.build_dataloader(dataloader, seed=seed, diff_rank_seed=diff_rank_seed)
        loader.worker_init_fn = partial(start_worker, loader.worker_init_fn)
        return loader

    def build_train_loop(self, loop: Any) -> Any:
        """As mmengine's; without a type ``max_iters`` means ``IterTrainLoop``, else by epochs."""
        if isinstance(loop, dict) and "type" not in loop:
            rest = {key: value for key, value in loop.items() if key != "by_epoch"}
            by_iter = counts_iterations(loop) or not loop.get("by_epoch", True)
            kind = "IterTrainLoop" if by_iter else "EpochTrainLoop"
            loop = {"type": f"polaformer.{kind}", **rest}
        return super().build_train_loop(loop)

    def build_log_processor(self, log_processor: Any) -> Any:
        """As mmengine's; without ``by_epoch`` it counts what the training loop counts."""
        if isinstance(log_processor, dict) and "by_epoch" not in log_processor:
            by_epoch = not counts_iterations(self._train_loop)
            log_processor = {**log_processor, "by_epoch": by_epoch}
        return super().build_log_processor(log_processor)

    def _build_param_scheduler(self, scheduler: Any, optim_wrapper: Any) -> Any:
        """As mmengine's; without ``by_epoch`` a schedule counts what the training loop counts."""
        entries = scheduler if isinstance(scheduler, Sequence) else [scheduler]
        by_iter = counts_iterations(self._train_loop)
        entries = [with_unit(entry, by_iter) for entry in entries]
        return super()._build_param_scheduler(entries, optim_wrapper)

    def build_val_loop(self, loop: Any) -> Any:
        """As mmengine's; no type means our ``ValLoop``."""
        if isinstance(loop, dict) and "type" not in loop:
            loop = {"type": "polaformer.ValLoop", **loop}
        return super().build_val_loop(loop)

    def build_test_loop(self, loop: Any) -> Any:
        """As mmengine's; no type means our ``TestLoop``."""
        if isinstance(loop, dict) and "type" not in loop:
            loop = {"type": "polaformer.TestLoop", **loop}
        return super().build_test_loop(loop)

    def wrap_model(self, model_wrapper_cfg: dict | None, model: torch.nn.Module) -> torch.nn.Module:
        """Move the model to the device and, in several processes, wrap it for gradients.

        On a CPU there are no device ids. Unused parameters are a fault in the model and not
        searched for, unless the config says ``find_unused_parameters=True``.
        """
        if model_wrapper_cfg is not None or is_model_wrapper(model):
            return super().wrap_model(model_wrapper_cfg, model)
        device = get_device()
        model = model.to(device)
        if not self.distributed:
            return batch_norm.of_one_process(model, self.logger)
        if device == "cpu":
            model = batch_norm.of_each_process(model, self.logger, bool(self.cfg.get("sync_bn")))
        elif self.cfg.get("sync_bn"):
            model = convert_sync_batchnorm(model, self.cfg.sync_bn)
        return MMDistributedDataParallel(
            module=model,
            device_ids=None if device == "cpu" else [int(os.environ["LOCAL_RANK"])],
            broadcast_buffers=False,
            find_unused_parameters=bool(self.cfg.get("find_unused_parameters", False)),
        )

    def _maybe_compile(self, target: str) -> None:
        """Compile the backbone if the config says ``compile=True`` or gives options of torch's.

        mmengine compiles the whole training step, which no hook and no scaler survives unbroken.
        """
        options = self.cfg.get("compile")
        if options:
            model = state.unwrapped(self.model)
            part = getattr(model, "backbone", model)
            part.compile(**({} if options is True else dict(options)))
            self.logger.info(f"{type(part).__name__} is compiled; the first steps are slow")

    def scale_lr(self, optim_wrapper: Any, auto_scale_lr: dict | None = None) -> None:
        """Scale every learning rate by images per update / ``base_batch_size`` (arXiv 1706.02677).

        Images per update are batch size x processes x accumulated steps. (mmengine's leaves out the
        accumulation, and the rate that it logs as ``base_lr``.)
        """
        if not auto_scale_lr or not auto_scale_lr.get("enable", False):
            return
        loader = self._train_dataloader
        batch = loader.batch_size if isinstance(loader, DataLoader) else loader["batch_size"]
        every = getattr(optim_wrapper, "_accumulative_counts", 1)
        images, base = batch * self.world_size * every, auto_scale_lr["base_batch_size"]
        for group in optim_wrapper.param_groups:
            group["lr"] *= images / base
        self.logger.info(
            f"learning rate x {images / base:g}: {images} images per update ({batch} per step, "
            f"{self.world_size} process(es), {every} step(s) accumulated), config for {base}"
        )

    def register_default_hooks(self, hooks: dict[str, Hook | dict | None] | None = None) -> None:
        """Register ``DEFAULT_HOOKS`` as changed by the config; a value of None takes one out."""
        merged: dict[str, Any] = copy.deepcopy(DEFAULT_HOOKS)
        for name, hook in (hooks or {}).items():
            if isinstance(hook, dict) and "type" not in hook:
                if name not in merged:
                    raise UserError(f"default_hooks.{name} has no type")
                hook = {**merged[name], **hook}
            merged[name] = hook
        for hook in merged.values():
            if hook is not None:
                self.register_hook(hook)

    def get_hooks_info(self) -> str:
        """The names of all hooks in their order, on one line."""
        return ", ".join(type(hook).__name__ for hook in self.hooks)

    def _log_env(self, env_cfg: dict) -> None:
        """One line instead of mmengine's pages; the run card holds the rest."""
        found = ", ".join(f"{name} {version}" for name, version in state.versions().items())
        self.logger.info(
            f"{found}; device {get_device()}, {self.world_size} process(es), seed {self.seed}; "
            f"work_dir {self.work_dir}"
        )

    @master_only
    def dump_config(self) -> None:
        """Write the config to ``config.py`` in the work folder."""
        if self._train_loop is not None and self.cfg:
            Path(self.work_dir, "config.py").write_text(self.config_text, encoding="utf-8")

    def find_resume_source(self) -> str | None:
        """The checkpoint to continue from, or None to start from zero.

        Raises:
            UserError: there are checkpoints, and every one is broken.
        """
        if not self._resume:
            return None
        if self._load_from is not None and self._resume != "auto":
            source = self._load_from
            return str(source["checkpoint"] if isinstance(source, dict) else source)
        path, broken = newest_valid(self.work_dir)
        for bad, reason in broken:
            if bad.exists():
                self.logger.warning(f"skipping the broken checkpoint {bad}: {reason}")
            else:
                self.logger.warning(f"last_checkpoint names {bad}, which is missing")
        if path is not None:
            return str(path)
        if broken:
            raise UserError(
                f"cannot resume: all {len(broken)} checkpoints in {self.work_dir} are broken or "
                "missing. Remove them, or train without --resume, to start from zero"
            )
        self.logger.info(f"nothing to resume in {self.work_dir}: starting from zero")
        return None

    def _init_model_weights(self) -> None:
        """Initialise the weights; a resumed run skips that and what it would read."""
        self.resume_source = self.find_resume_source()
        if self.resume_source is None:
            pretrained = take_pretrained(state.unwrapped(self.model))
            super()._init_model_weights()
            load_pretrained(pretrained)

    def load_or_resume(self) -> None:
        """Continue the run, or load starting weights, or neither."""
        if self._has_loaded:
            return
        if self.resume_source is not None:
            self.resume(self.resume_source)
            self._say_if_finished()
        else:
            self._resume = False
            if self._load_from is not None:
                self.load_checkpoint(self._load_from)
            if not self._whole_model:
                barrier()  # every process may have read its starting weights there
                self._set_former_run_aside()
        self._has_loaded = True

    @master_only
    def _set_former_run_aside(self) -> None:
        """Move what a former run left in the work folder, so that nothing resumes from it."""
        moved = state.set_aside(self.work_dir, f"previous_{self.timestamp}")
        if moved is not None:
            self.logger.warning(
                f"{self.work_dir} holds a former run; its checkpoints and scalars are now in "
                f"{moved} (--resume would have continued it)"
            )

    def _say_if_finished(self) -> None:
        loop = self.train_loop
        by_epoch = not counts_iterations(loop)
        done, end = (loop.epoch, loop.max_epochs) if by_epoch else (loop.iter, loop.max_iters)
        if done >= end:
            unit, key = ("epochs", "max_epochs") if by_epoch else ("iterations", "max_iters")
            self.logger.warning(
                f"already finished: {done} of {end} {unit} (raise train_cfg.{key} to go on)"
            )

    def load_checkpoint(  # type: ignore[override]
        self,
        filename: str | dict[str, Any],
        map_location: Any = "cpu",
        strict: bool = False,
        revise_keys: Any = (),
    ) -> LoadReport:
        """Load weights for a new run or a test; returns the report, which is also in the log.

        ``filename`` may be a dict: ``checkpoint`` and options of ``checkpoint.io.load_weights``.
        ``strict`` accepts no missing weight. The other arguments are mmengine's and not needed.
        """
        model = state.unwrapped(self.model)
        report = load_start(model, filename)
        if (strict or self._whole_model) and (report.missing or report.mismatched):
            lacking = [*report.missing, *report.mismatched]
            kind = f"; {report.other_kind}" if report.other_kind else ""
            raise CheckpointError(
                f"{report.path} does not hold the whole model: {len(lacking)} tensors are missing "
                f"or of another shape, for example {lacking[0]}{kind}"
            )
        if self._whole_model and report.surplus:
            raise CheckpointError(f"{report.path} is of another model: {surplus_text(report)}")
        if self._whole_model:
            state.compare_classes(self, report.path, report.classes)
        weights = {key: value.clone() for key, value in model.state_dict().items()}
        self.call_hook("after_load_checkpoint", checkpoint={"state_dict": weights})
        self._has_loaded = True
        return report

    def val(self) -> dict:
        """Validate without training; every weight of the model must be in the checkpoint."""
        self._whole_model = True
        return super().val()

    def test(self) -> dict:
        """Test; every weight of the model must be in the checkpoint."""
        self._whole_model = True
        return super().test()

    def resume(
        self,
        filename: str,
        resume_optimizer: bool = True,
        resume_param_scheduler: bool = True,
        map_location: Any = "default",
    ) -> None:
        """Continue exactly from a checkpoint of this run.

        Raises:
            CheckpointError: the file cannot be read, or belongs to another model.
            UserError: it holds weights only.
        """
        checkpoint = read_checkpoint(filename)
        state.require_training_state(checkpoint, filename)
        state.check_same_model(self, checkpoint, filename)
        self.call_hook("after_load_checkpoint", checkpoint=checkpoint)
        self._adopt_seed(checkpoint["meta"].get("seed"))
        state.restore(self, checkpoint, filename)
        self._has_loaded = True
        epoch = "" if counts_iterations(self.train_loop) else f"epoch {self.epoch}, "
        self.logger.info(f"resumed from {filename}: {epoch}iteration {self.iter}")

    def _adopt_seed(self, seed: int | None) -> None:
        if seed is None or seed == self.seed:
            return
        if self._randomness_cfg.get("seed") is not None:
            self.logger.warning(f"the resumed run has seed {seed}; {self.seed} is not used")
        self._randomness_cfg = {**self._randomness_cfg, "seed": seed}
        self.set_randomness(**self._randomness_cfg)
        sampler = self.train_dataloader.sampler
        if hasattr(sampler, "seed"):
            sampler.seed = seed

    @master_only
    def save_checkpoint(
        self,
        out_dir: str,
        filename: str,
        file_client_args: dict | None = None,
        save_optimizer: bool = True,
        save_param_scheduler: bool = True,
        meta: dict | None = None,
        by_epoch: bool = True,
        backend_args: dict | None = None,
    ) -> None:
        """Write a checkpoint atomically; the arguments are mmengine's.

        ``save_optimizer=False`` leaves everything out that only resuming needs.
        """
        position = {
            "epoch": self.epoch + 1 if by_epoch else self.epoch,
            "iter": self.iter if by_epoch else self.iter + 1,
        }
        checkpoint = state.collect(self, {**position, **(meta or {})}, save_optimizer)
        self.call_hook("before_save_checkpoint", checkpoint=checkpoint)
        write_checkpoint(state.to_cpu(checkpoint), os.path.join(out_dir, filename))
