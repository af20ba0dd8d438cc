"""What a checkpoint holds so that a run continues exactly, and how it is put back."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from mmengine.model import is_model_wrapper
from mmengine.runner import BaseLoop

from polaformer.checkpoint.io import CheckpointError
from polaformer.checkpoint.origin import layer_patterns
from polaformer.checkpoint.tables import table_grids
from polaformer.compat.mmengine import OPAQUE, plain
from polaformer.compat.versions import TESTED, installed
from polaformer.engine import resuming
from polaformer.engine.seeding import random_state, set_random_state
from polaformer.engine.units import counts_iterations
from polaformer.errors import UserError
from polaformer.version import __version__


def unwrapped(model: torch.nn.Module) -> torch.nn.Module:
    """The model itself, without the wrapper for several processes."""
    inner = model.module if is_model_wrapper(model) else model
    assert isinstance(inner, torch.nn.Module)
    return inner


def config_hash(cfg: Mapping[str, Any]) -> str:
    """Twelve hexadecimal digits that name a config by what it computes, not where it runs."""
    where = ("work_dir", "resume", "load_from", "launcher")
    text = repr(sorted((key, plain(value)) for key, value in cfg.items() if key not in where))
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def versions() -> dict[str, str]:
    """The versions of this package and of the libraries that decide about a result."""
    found = {name: installed(name) or "missing" for name in TESTED}
    return {"polaformer": __version__, **found}


def collect(runner: Any, meta: dict[str, Any], training_state: bool) -> dict[str, Any]:
    """Everything a checkpoint holds, as tensors on the CPU and plain containers.

    Args:
        meta: with ``epoch`` and ``iter``: how far the run is.
        training_state: also optimiser, scaler, schedulers and generators; without them the file
            can be tested and fine-tuned but not resumed.
    """
    checkpoint: dict[str, Any] = {
        "meta": _meta(runner, meta),
        "state_dict": to_cpu(unwrapped(runner.model).state_dict()),
        "message_hub": to_cpu(runner.message_hub.state_dict()),
    }
    if training_state:
        wrapper = runner.optim_wrapper
        checkpoint["optimizer"] = _plain("optimizer", to_cpu(wrapper.state_dict()))
        schedulers = runner.param_schedulers or []
        checkpoint["param_schedulers"] = [
            _plain("param_scheduler", scheduler.state_dict()) for scheduler in schedulers
        ]
        checkpoint["random_state"] = random_state()
        gradients = _pending_gradients(runner, meta["iter"])
        if gradients:
            checkpoint["gradients"] = gradients
    return checkpoint


def _meta(runner: Any, meta: dict[str, Any]) -> dict[str, Any]:
    text = runner.config_text
    loop = runner.train_loop
    samples = loop.samples_done(meta["epoch"], meta["iter"]) if hasattr(loop, "samples_done") else 0
    dataset_meta = getattr(runner.train_dataloader.dataset, "metainfo", None)
    return {
        **meta,
        "samples_in_epoch": samples,
        "global_batch": getattr(loop, "global_batch", None),
        "seed": runner.seed,
        "cfg": text,
        "config": plain(runner.cfg.to_dict()),
        "data": runner.data_facts,
        "config_hash": config_hash(runner.cfg.to_dict()),
        "experiment_name": runner.experiment_name,
        "time": time.strftime("%Y-%m-%d %H:%M:%S"),
        "versions": versions(),
        "table_grids": table_grids(unwrapped(runner.model)),
        "dataset_meta": _plain("dataset_meta", dataset_meta) if dataset_meta else None,
    }


def _plain(what: str, value: Any) -> Any:
    converted = plain(value)
    if converted is OPAQUE:
        raise TypeError(f"the state of '{what}' has no plain form and cannot be saved: {value!r}")
    return converted


def to_cpu(value: Any) -> Any:
    """``value`` with every tensor in its containers detached and on the CPU."""
    if isinstance(value, torch.Tensor):
        return value.detach().cpu()
    if isinstance(value, dict):
        return {key: to_cpu(entry) for key, entry in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(to_cpu(entry) for entry in value)
    return value


def _pending_gradients(runner: Any, iteration: int) -> dict[str, torch.Tensor]:
    """Gradients that were accumulated and not yet applied, by parameter name.

    Of several processes each has its own, and there is one file: they are not kept then.
    """
    counts = getattr(runner.optim_wrapper, "_accumulative_counts", 1)
    if (
        runner.world_size > 1
        or counts == 1
        or iteration % counts == 0
        or iteration == runner.max_iters
    ):
        return {}
    named = unwrapped(runner.model).named_parameters()
    return {name: param.grad.detach().cpu() for name, param in named if param.grad is not None}


def check_same_model(runner: Any, checkpoint: dict[str, Any], filename: str) -> None:
    """Raise CheckpointError if the checkpoint belongs to another model or other classes."""
    ours = unwrapped(runner.model).state_dict()
    theirs = checkpoint["state_dict"]
    differences = [f"the checkpoint lacks {key}" for key in ours if key not in theirs]
    differences += [f"the model has no {key}" for key in theirs if key not in ours]
    differences += [
        f"{key} is {tuple(theirs[key].shape)} in the checkpoint, {tuple(ours[key].shape)} here"
        for key in ours
        if key in theirs and theirs[key].shape != ours[key].shape
    ]
    if differences:
        more = f" (and {len(differences) - 3} more)" if len(differences) > 3 else ""
        shaped = [k for k in ours if k in theirs and theirs[k].shape != ours[k].shape]
        raise CheckpointError(
            f"cannot resume from {filename}: it belongs to another model: "
            f"{'; '.join(differences[:3])}{more}. {_start_anew(filename, shaped)}"
        )
    saved = (checkpoint["meta"].get("dataset_meta") or {}).get("classes")
    current = (getattr(runner.train_dataloader.dataset, "metainfo", None) or {}).get("classes")
    if saved is not None and current is not None and tuple(saved) != tuple(current):
        raise CheckpointError(
            f"cannot resume from {filename}: it was trained on other classes: "
            f"{_short(saved)} there, {_short(current)} here. {_start_anew(filename)}"
        )


def _start_anew(filename: str, shaped: Sequence[str] = ()) -> str:
    """How to fine-tune instead; layers of ``shaped``, tensors of another shape, start fresh."""
    options = f", allow_shape_mismatch={layer_patterns(shaped)}" if shaped else ""
    start = f"dict(checkpoint='{filename}'{options})" if options else f"'{filename}'"
    return f"To start a new run from its weights, leave --resume out and set load_from={start}"


def compare_classes(runner: Any, path: str | None, trained: Sequence[str] | None) -> None:
    """Compare the classes of a checkpoint with those of the data it is tested on.

    The same names in another place would be mistaken for one another: CheckpointError. Names that
    have nothing in common may mean the same in another language: a warning.
    """
    loops = (runner._test_loop, runner._val_loop)
    loader = next((loop.dataloader for loop in loops if isinstance(loop, BaseLoop)), None)
    here = (getattr(getattr(loader, "dataset", None), "metainfo", None) or {}).get("classes")
    if trained is None or here is None or tuple(trained) == tuple(here):
        return
    told = f"{path} was trained on other classes: {_short(trained)} there, {_short(here)} here"
    if set(trained) & set(here):
        raise CheckpointError(
            f"{told}; take the classes, and their order, that it was trained with"
        )
    runner.logger.warning(told)


def _short(names: Any) -> str:
    shown = ", ".join(map(str, list(names)[:5]))
    return f"{len(names)} ({shown}{', …' if len(names) > 5 else ''})"


def restore(runner: Any, checkpoint: dict[str, Any], filename: str) -> None:
    """Put model, optimiser, schedulers, position and generators back as they were saved."""
    meta = checkpoint["meta"]
    unwrapped(runner.model).load_state_dict(checkpoint["state_dict"], strict=True)
    _restore_position(runner, meta, filename)
    runner.message_hub.load_state_dict(checkpoint["message_hub"])
    resuming.warn_of_differences(runner, meta)
    fresh = resuming.group_values(runner.optim_wrapper)
    try:
        runner.optim_wrapper.load_state_dict(checkpoint["optimizer"])
    except (ValueError, KeyError) as error:
        raise CheckpointError(
            f"cannot resume from {filename}: the optimiser of this config is another one: {error}"
        ) from error
    _restore_schedulers(runner, checkpoint.get("param_schedulers") or [], fresh, filename)
    resuming.prefer_config_values(runner, meta, fresh)
    named = dict(unwrapped(runner.model).named_parameters())
    for name, gradient in checkpoint.get("gradients", {}).items():
        named[name].grad = gradient.to(named[name])
    if "gradients" in checkpoint:
        # mmengine says so of every start between two updates; here nothing is lost.
        runner.logger.addFilter(lambda record: "iterations is lost" not in record.getMessage())
    if "random_state" in checkpoint:
        set_random_state(checkpoint["random_state"])


def _restore_position(runner: Any, meta: dict[str, Any], filename: str) -> None:
    loop = runner.train_loop
    before = (meta.get("config") or {}).get("train_cfg")
    if before and counts_iterations(before) != counts_iterations(loop):
        units = ("epochs", "iterations")
        was = counts_iterations(before)
        raise UserError(
            f"cannot resume from {filename}: its run counted {units[was]} and train_cfg counts "
            f"{units[not was]}. {_start_anew(filename)}"
        )
    if hasattr(loop, "set_position"):
        loop.set_position(meta["epoch"], meta["iter"], meta.get("samples_in_epoch", 0))
        saved = meta.get("global_batch")
        if saved not in (None, loop.global_batch):
            runner.logger.warning(
                f"the checkpoint was written with {saved} images per step, now there are "
                f"{loop.global_batch}: schedules that count iterations do not fit any more"
            )
    else:
        loop._epoch, loop._iter = meta["epoch"], meta["iter"]


def _restore_schedulers(
    runner: Any, saved: list[dict], fresh: list[dict[str, Any]], filename: str
) -> None:
    current = runner.param_schedulers or []
    if len(saved) != len(current):
        raise CheckpointError(
            f"cannot resume from {filename}: it holds {len(saved)} parameter schedulers and the "
            f"config has {len(current)}"
        )
    resuming.restore_schedules(runner, saved, fresh)


FORMER_RUN = (
    "epoch_*.pth",
    "iter_*.pth",
    "best_*.pth",
    "last_checkpoint",
    "scalars.json",
    "metrics.json",
    "predictions",
    "predictions.json",
    "predictions.*.json",
    "pictures",
    "report.html",
)


def set_aside(work_dir: str, name: str) -> Path | None:
    """Move what a former run left in ``work_dir`` to a new folder in it; None if none."""
    found = sorted(path for pattern in FORMER_RUN for path in Path(work_dir).glob(pattern))
    if not found:
        return None
    folder = Path(work_dir) / name
    while folder.exists():
        folder = folder.with_name(f"{folder.name}_")
    folder.mkdir()
    for path in found:
        path.rename(folder / path.name)
    return folder


def require_training_state(checkpoint: dict[str, Any], filename: str) -> None:
    """Raise UserError for a file that holds weights only."""
    missing = [key for key in ("meta", "optimizer", "message_hub") if key not in checkpoint]
    if missing:
        raise UserError(
            f"cannot resume from {filename}: it holds no {', '.join(missing)}. "
            f"{_start_anew(filename)}"
        )
