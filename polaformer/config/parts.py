"""Trial builds of hooks, schedulers and metrics: what their constructors refuse is told first."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from polaformer.config import schema
from polaformer.config.keys import Context, Finding
from polaformer.config.pipelines import data_sets_in, entries, typed
from polaformer.config.refusals import REFUSALS, refusal
from polaformer.config.trial import quiet

Build = Callable[[dict[str, Any]], Any]


def part_mistakes(
    cfg: Mapping[str, Any], wrong: set[str], epoch_length: int | None
) -> Iterator[Finding]:
    """What hooks, schedulers and metrics refuse; parts with a mistake in ``wrong`` are left out.

    ``epoch_length`` is the number of steps of an epoch, for schedules in epochs that step with
    every iteration.
    """
    from mmengine.registry import DefaultScope

    for key, part, build in _parts(cfg, epoch_length or 1):
        if build is not _hook and "train_cfg.max_epochs" in wrong:
            continue
        if any(k == key or k.startswith(f"{key}.") for k in wrong):
            continue
        try:
            with quiet(), DefaultScope.overwrite_default_scope(cfg.get("default_scope")):
                build(copy.deepcopy(dict(part)))
        except OSError as error:
            yield _unreadable(key, part, error)
        except REFUSALS as error:
            text = refusal(error).removeprefix(f"{key.partition('.')[0]}: ")
            yield Finding(_narrowed(key, part, text), text)


def _unreadable(key: str, part: Mapping[str, Any], error: OSError) -> Finding:
    """A file that a part names and cannot read."""
    file = str(error.filename)
    named = [name for name, value in part.items() if isinstance(value, str) and value == file]
    absent = isinstance(error, FileNotFoundError)
    text = f"'{file}' does not exist" if absent else f"cannot read '{file}': {error.strerror}"
    return Finding(f"{key}.{named[0]}" if named else key, text, absent=absent)


def transform_mistakes(cfg: Mapping[str, Any], wrong: set[str]) -> Iterator[Finding]:
    """What the transforms of the data sets and of ``tta_pipeline`` refuse."""
    from mmengine.registry import TRANSFORMS, DefaultScope

    steps = [
        step
        for _, key, data in data_sets_in(cfg)
        for step in typed(f"{key}.pipeline", data.get("pipeline"))
    ]
    for key, part in (*steps, *typed("tta_pipeline", cfg.get("tta_pipeline"))):
        if any(k == key or k.startswith(f"{key}.") for k in wrong):
            continue
        try:
            with quiet(), DefaultScope.overwrite_default_scope(cfg.get("default_scope")):
                TRANSFORMS.build(copy.deepcopy(dict(part)))
        except (*REFUSALS, ImportError) as error:
            text = refusal(error)
            yield Finding(_narrowed(key, part, text), text)


def _narrowed(key: str, part: Mapping[str, Any], text: str) -> str:
    """The key of the only argument that the sentence names, or ``key``."""
    words = set(re.findall(r"\w+", text))
    named = [name for name in part if name in words and name != "type"]
    return f"{key}.{named[0]}" if len(named) == 1 else key


def _parts(cfg: Mapping[str, Any], epoch_length: int) -> Iterator[tuple[str, Mapping, Build]]:
    known = schema.default_hooks(Context.of(cfg).runner)
    for key, hook in entries("default_hooks", cfg.get("default_hooks")):
        yield key, {**known.get(key.rpartition(".")[2], {}), **hook}, _hook
    for key, hook in entries("custom_hooks", cfg.get("custom_hooks")):
        yield key, hook, _hook
    for name in schema.EVALUATORS:
        for key, metric in typed(name, cfg.get(name)):
            yield key, metric, _metric
    if cfg.get("train_cfg") is not None:
        for key, scheduler in typed("param_scheduler", cfg.get("param_scheduler")):
            yield key, scheduler, _scheduler(cfg, epoch_length)


def _hook(part: dict[str, Any]) -> None:
    import torch
    from mmengine.hooks import EMAHook
    from mmengine.registry import HOOKS, MODELS
    from mmengine.runner import get_priority

    get_priority(part.pop("priority", "NORMAL"))
    hook = HOOKS.build(part)
    if isinstance(hook, EMAHook):  # its other arguments meet their reader when training starts
        MODELS.build(dict(hook.ema_cfg), default_args={"model": torch.nn.Linear(1, 1)})


def _metric(part: dict[str, Any]) -> None:
    from mmengine.registry import EVALUATOR, METRICS

    (EVALUATOR if "metrics" in part else METRICS).build(part)


def _scheduler(cfg: Mapping[str, Any], epoch_length: int) -> Build:
    """Builds a scheduler as the runner does, over an optimiser of one number."""

    def build(part: dict[str, Any]) -> None:
        loop = cfg["train_cfg"]
        epochs = loop.get("max_epochs", 1)
        end = epochs if part.get("by_epoch", True) else loop.get("max_iters", epochs * epoch_length)
        part.setdefault("end", end)
        try:
            _build_scheduler(part, epoch_length)
        except REFUSALS as error:
            raise _in_units_of_the_config(error, part, epoch_length) from error

    return build


def _in_units_of_the_config(
    error: Exception, part: Mapping[str, Any], epoch_length: int
) -> Exception:
    """The same refusal with the numbers of the config, or ``error`` where there is none."""
    for unit in ({}, {"by_epoch": False}):
        try:
            _build_scheduler({**part, "convert_to_iter_based": False, **unit}, epoch_length)
        except REFUSALS as again:
            if _wording(again) == _wording(error):
                return again
    return error


def _wording(error: Exception) -> str:
    return re.sub(r"-?\d[\d.e+-]*", "#", refusal(error))


def _build_scheduler(part: Mapping[str, Any], epoch_length: int) -> None:
    import torch
    from mmengine.registry import PARAM_SCHEDULERS

    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=0.1, momentum=0.9)
    given = {"optimizer": optimizer, "epoch_length": epoch_length}
    PARAM_SCHEDULERS.build(copy.deepcopy(part), default_args=given)
