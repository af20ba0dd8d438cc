"""What a resumed run takes from the file and what from the config, where the two differ.

The file has the position, the config the shape: a schedule that the config now describes otherwise
(more epochs, another warm-up) gives at iteration ``k`` what it gives in a run that was configured
so from the start. A changed learning rate or weight decay is the config's. Every difference is in
the log.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

from polaformer.compat.mmengine import plain

_POSITION = frozenset(
    ["last_step", "_global_step", "_last_value", "verbose"]
    + ["best", "num_bad_epochs", "cooldown_counter"]  # of a plateau
)
_HYPER = ("lr", "weight_decay", "momentum", "betas", "eps")
_OWN_TO_A_START = ("work_dir", "resume", "load_from", "launcher")
_SHOWN = 10


def group_values(wrapper: Any) -> list[dict[str, Any]]:
    """The hyper-parameters of every group of the optimiser."""
    groups = wrapper.param_groups
    return [{key: group[key] for key in group if key != "params"} for group in groups]


def restore_schedules(runner: Any, saved: list[dict[str, Any]], fresh: list[dict]) -> None:
    """Continue the schedulers, built at step 0, where the file's ended.

    Args:
        saved: their states in the file, as many as there are schedulers.
        fresh: ``group_values`` at step 0, before the optimiser's state was loaded.
    """
    schedulers = runner.param_schedulers or []
    pairs = list(zip(schedulers, saved, strict=True))
    changed = [type(now).__name__ for now, old in pairs if _shape(now.state_dict()) != _shape(old)]
    reads_metrics = [type(now).__name__ for now in schedulers if getattr(now, "need_val_args", 0)]
    if changed and not reads_metrics:
        visible = [
            type(now).__name__
            for now, old in pairs
            if {**_shape(now.state_dict()), "end": 0} != {**_shape(old), "end": 0}
        ]
        rates = [
            f"{now.param_name} {old['base_values'][0]:g} -> {now.base_values[0]:g}"
            for now, old in pairs
            if now.base_values != old["base_values"]
        ]
        if visible:  # a longer run alone only moves the end
            runner.logger.warning(
                f"{', '.join(visible)}: the config's schedule is not the checkpoint's and holds "
                f"from iteration {runner.iter} on{'; base ' + rates[0] if rates else ''}"
            )
        _replay(runner, schedulers, [int(old["_global_step"]) for old in saved], fresh)
        return
    if changed:
        runner.logger.warning(
            f"{', '.join(changed)} differ from the checkpoint, which keeps its schedule: "
            f"{reads_metrics[0]} depends on earlier validations and cannot be computed anew"
        )
    for scheduler, state in pairs:
        scheduler.load_state_dict(state)


def _shape(state: Mapping[str, Any]) -> dict[str, Any]:
    kept = plain(dict(state))
    return {key: value for key, value in kept.items() if key not in _POSITION}


def _replay(runner: Any, schedulers: list[Any], steps: list[int], fresh: list[dict]) -> None:
    """Step the schedulers again from the start, in the order of training."""
    names = {scheduler.param_name for scheduler in schedulers}
    for group, values in zip(runner.optim_wrapper.param_groups, fresh, strict=True):
        for name in names:
            group.update({key: values[key] for key in (name, f"initial_{name}") if key in values})
    left = dict(zip(schedulers, steps, strict=True))
    length = max(len(runner.train_dataloader), 1)  # an endless stream may have no whole pass
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # of steps without one of the optimiser
        for iteration in range(1, runner.iter + 1):
            _step([s for s in schedulers if not s.by_epoch], left)
            if iteration % length == 0:
                _step([s for s in schedulers if s.by_epoch], left)
        while any(scheduler._global_step < end for scheduler, end in left.items()):
            _step(schedulers, left)


def _step(schedulers: list[Any], left: dict[Any, int]) -> None:
    for scheduler in schedulers:
        if scheduler._global_step < left[scheduler]:
            scheduler.step()


def prefer_config_values(runner: Any, meta: Mapping[str, Any], fresh: list[dict]) -> None:
    """Give the optimiser the config's learning rate, weight decay, ... if the config changed them.

    What a scheduler sets is its own affair (``restore_schedules``).
    """
    saved = meta.get("config") or {}
    now = plain(runner.cfg.to_dict())
    keys = ("optim_wrapper", "auto_scale_lr")
    same_batch = meta.get("global_batch") == getattr(runner.train_loop, "global_batch", None)
    if same_batch and all(saved.get(key) == now.get(key) for key in keys):
        return
    scheduled = {scheduler.param_name for scheduler in runner.param_schedulers or []}
    told = set()
    for group, values in zip(runner.optim_wrapper.param_groups, fresh, strict=True):
        for key in _HYPER:
            if key in scheduled or key not in values or group.get(key) == values[key]:
                continue
            told.add(f"{key}: {group.get(key)} -> {values[key]}")
            group[key] = values[key]
    if told:
        runner.logger.warning(f"the config's values hold: {_listed(sorted(told))}")


def warn_of_differences(runner: Any, meta: Mapping[str, Any]) -> None:
    """Say which entries of the config and which facts of the data are not those of the file."""
    saved, now = meta.get("config"), plain(runner.cfg.to_dict())
    if saved:
        before, after = (
            _flat({k: v for k, v in config.items() if k not in _OWN_TO_A_START})
            for config in (saved, now)
        )
        changes = [
            f"{key}: {before.get(key, 'absent')} -> {after.get(key, 'absent')}"
            for key in [*before, *(key for key in after if key not in before)]
            if before.get(key, _ABSENT) != after.get(key, _ABSENT)
        ]
        if changes:
            runner.logger.warning(f"the config differs from the checkpoint's: {_listed(changes)}")
    data = meta.get("data")
    if data and data != runner.data_facts:
        keys = sorted({*data, *runner.data_facts})
        changes = [
            f"{key}: {data.get(key)} -> {runner.data_facts.get(key)}"
            for key in keys
            if data.get(key) != runner.data_facts.get(key)
        ]
        runner.logger.warning(f"the training data differ from the checkpoint's: {_listed(changes)}")


_ABSENT = object()


def _flat(value: Any, prefix: str = "") -> dict[str, Any]:
    if isinstance(value, Mapping) and value:
        items = value.items()
    elif isinstance(value, (list, tuple)) and any(isinstance(v, Mapping) for v in value):
        items = dict(enumerate(value)).items()
    else:
        return {prefix: value}
    flat: dict[str, Any] = {}
    for key, entry in items:
        flat.update(_flat(entry, f"{prefix}.{key}" if prefix else str(key)))
    return flat


def _listed(changes: list[str]) -> str:
    more = f" (and {len(changes) - _SHOWN} more)" if len(changes) > _SHOWN else ""
    return "; ".join(changes[:_SHOWN]) + more
