"""What must agree between the parts of a config, each rule a function that yields findings."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from polaformer.config.classes import heads
from polaformer.config.keys import Finding
from polaformer.config.metrics import metric_names
from polaformer.config.plan import DataFound, Steps
from polaformer.errors import did_you_mean, nearest

NO_WEIGHTS = (".py", ".json", ".yaml", ".yml", ".txt", ".log", ".md", ".png", ".jpg", ".html")
"""Suffixes of files that surely hold no weights; what others hold is seen when they are read."""
_PHASES = {
    "train": ("train_dataloader", "train_cfg", "optim_wrapper"),
    "val": ("val_dataloader", "val_cfg", "val_evaluator"),
    "test": ("test_dataloader", "test_cfg", "test_evaluator"),
}


def missing_parts(cfg: Mapping[str, Any]) -> Iterator[Finding]:
    """A phase needs its dataloader, its loop and its third part, or none of them."""
    if cfg.get("model") is None:
        yield Finding("model", "a config needs a model")
    for phase, keys in _PHASES.items():
        given = [key for key in keys if cfg.get(key) is not None]
        for key in keys:
            if given and key not in given:
                yield Finding(key, f"missing: {phase} needs {', '.join(keys)} together")
    loop = cfg.get("train_cfg")
    if isinstance(loop, Mapping) and "type" in loop and "by_epoch" in loop:
        yield Finding("train_cfg", "only one of type and by_epoch may be given")


def weight_files(cfg: Mapping[str, Any]) -> Iterator[Finding]:
    """Every weight file that is named exists and is of a readable kind."""
    named = dict(_pretrained("model", cfg.get("model")))
    if cfg.get("load_from"):
        start = cfg["load_from"]
        named["load_from"] = start.get("checkpoint") if isinstance(start, Mapping) else start
    for key, value in named.items():
        if not isinstance(value, str | Path):
            continue
        text = str(value)
        path = Path(text).expanduser()
        if re.match(r"\w+://", text):
            yield Finding(key, f"'{text}' is an address; download the file and name its path")
        elif path.is_dir():
            yield Finding(key, f"'{text}' is a folder, not a weight file")
        elif not path.is_file():
            names = [p.name for p in path.parent.glob("*")] if path.parent.is_dir() else []
            hint = did_you_mean(path.name, names)
            yield Finding(key, f"'{text}' does not exist; {hint}".strip("; "), absent=True)
        elif path.suffix in NO_WEIGHTS:
            yield Finding(key, f"'{text}' is not a weight file")


def _pretrained(path: str, node: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(node, Mapping):
        for key, child in node.items():
            if key == "init_cfg" and isinstance(child, Mapping) and child.get("checkpoint"):
                yield f"{path}.init_cfg.checkpoint", child["checkpoint"]
            yield from _pretrained(f"{path}.{key}", child)
    elif isinstance(node, list | tuple):
        for index, child in enumerate(node):
            yield from _pretrained(f"{path}.{index}", child)


def class_counts(
    cfg: Mapping[str, Any], data: Mapping[str, DataFound], model: Any = None
) -> Iterator[Finding]:
    """Every head has one output per class, and all splits have the same classes.

    The built ``model`` tells the number of heads that leave it to a default.
    """
    found = next(((split, d.classes) for split, d in data.items() if d.classes), None)
    if found is not None:
        yield from _outputs(cfg, *found, model)
    train = data.get("train")
    if model is not None or train is None or not train.classes:
        return
    for split, other in data.items():
        if other.classes and set(other.classes) != set(train.classes):
            extra = sorted(set(other.classes) - set(train.classes))
            lost = sorted(set(train.classes) - set(other.classes))
            parts = [f"only in {split}: {_some(extra)}"] * bool(extra)
            parts += [f"only in train: {_some(lost)}"] * bool(lost)
            yield Finding(
                f"{split}_dataloader.dataset", f"other classes than train: {'; '.join(parts)}"
            )
        elif other.classes and other.classes != train.classes:
            yield Finding(f"{split}_dataloader.dataset", "the classes of train in another order")


def _outputs(
    cfg: Mapping[str, Any], split: str, names: tuple[str, ...], model: Any
) -> Iterator[Finding]:
    for key, head, last in heads(cfg):
        outputs = head.get(last)
        if (outputs is None) != (model is not None):  # each is looked at once
            continue
        if outputs is None:
            outputs = getattr(_part(model, key), last, None)
        if isinstance(outputs, int) and outputs != len(names):
            yield Finding(
                key,
                f"{outputs}, but {split}_dataloader.dataset has {len(names)} classes "
                f"({_some(names)}); {_proposal(names)}",
            )


def _proposal(names: tuple[str, ...]) -> str:
    """The line that sets every head and data set at once."""
    if len(names) > 20:
        return f"a top-level classes=(…) with these {len(names)} names sets every head"
    return f"write classes = {names!r} at the top to set every head and data set"


def _part(model: Any, key: str) -> Any:
    """The built part that owns the dotted ``key`` of the config's model."""
    for name in key.split(".")[1:-1]:
        model = model[int(name)] if name.isdigit() else getattr(model, name, None)
        if model is None:
            return None
    # A cascade makes one head for each stage of the one that is written.
    return model[0] if type(model).__name__ == "ModuleList" and len(model) else model


def _some(names: Any) -> str:
    names = list(names)
    return ", ".join(names[:4]) + (f", … ({len(names)})" if len(names) > 4 else "")


_STAGED = ("bbox_head", "bbox_roi_extractor", "mask_head", "mask_roi_extractor")


def stages(cfg: Mapping[str, Any]) -> Iterator[Finding]:
    """A cascade has as many heads, loss weights and settings as stages."""
    model = cfg.get("model")
    if not isinstance(model, Mapping) or not isinstance(model.get("roi_head"), Mapping):
        return
    roi_head = model["roi_head"]
    number = roi_head.get("num_stages")
    if not isinstance(number, int):
        return
    lists = {f"roi_head.{n}": roi_head.get(n) for n in (*_STAGED, "stage_loss_weights")}
    training = model.get("train_cfg")
    if isinstance(training, Mapping):
        lists["train_cfg.rcnn"] = training.get("rcnn")
    counts = {key: len(one) for key, one in lists.items() if isinstance(one, list | tuple)}
    others = {key: count for key, count in counts.items() if count != number}
    if others and len(others) == len(counts):  # the number is what has to be changed
        told = ", ".join(f"{count} of {key}" for key, count in others.items())
        yield Finding("model.roi_head.num_stages", f"{number}, but there are {told}")
        return
    for key, count in others.items():
        text = f"{count} entries, but roi_head.num_stages is {number}; each stage needs one"
        yield Finding(f"model.{key}", text)


def batches(
    cfg: Mapping[str, Any], data: Mapping[str, DataFound], processes: int
) -> Iterator[Finding]:
    """At least one full batch where incomplete ones are dropped; positive sizes."""
    for split in ("train", "val", "test"):
        key = f"{split}_dataloader"
        loader = cfg.get(key)
        if not isinstance(loader, Mapping):
            continue
        size, workers = loader.get("batch_size", 1), loader.get("num_workers", 0)
        if size is None or (isinstance(size, int) and size < 1):
            yield Finding(f"{key}.batch_size", f"{size}; allowed: 1 and more")
            continue
        if isinstance(workers, int) and workers < 0:
            yield Finding(f"{key}.num_workers", f"{workers}; allowed: 0 and more")
        if loader.get("persistent_workers") and workers == 0:
            yield Finding(f"{key}.persistent_workers", "True needs num_workers of at least 1")
        grouped = isinstance(loader.get("batch_sampler"), Mapping)
        if grouped and loader.get("drop_last"):
            yield Finding(f"{key}.drop_last", "belongs into batch_sampler, which makes the batches")
        found = data.get(split)
        if found is None or not drops_last(loader):
            continue
        share = -(-found.images // processes)
        if share < size:
            last = f"{key}.batch_sampler.drop_last" if grouped else f"{key}.drop_last"
            yield Finding(
                last,
                f"True with batch_size {size}, but {found.images} images on {processes} "
                f"process(es): an epoch would have no batch. Set {last}=False or "
                f"{key}.batch_size={max(share, 1)}",
            )


def drops_last(loader: Mapping[str, Any]) -> bool:
    """Whether a dataloader leaves out the last, incomplete batch."""
    grouped = loader.get("batch_sampler")
    return bool((grouped if isinstance(grouped, Mapping) else loader).get("drop_last"))


def schedule(cfg: Mapping[str, Any], steps: Steps | None) -> tuple[list[Finding], list[Finding]]:
    """Problems and notes about the length of learning-rate schedules against the training."""
    problems: list[Finding] = []
    notes: list[Finding] = []
    loop = cfg.get("train_cfg")
    if not isinstance(loop, Mapping) or not isinstance(loop.get("max_epochs"), int):
        return problems, notes
    epochs = loop["max_epochs"]
    if epochs < 1:
        problems.append(Finding("train_cfg.max_epochs", f"{epochs}; allowed: 1 and more"))
        return problems, notes
    entries = cfg.get("param_scheduler") or []
    listed = isinstance(entries, list | tuple)
    for index, entry in enumerate(entries if listed else [entries]):
        if isinstance(entry, Mapping):
            key = f"param_scheduler.{index}" if listed else "param_scheduler"
            length = epochs if entry.get("by_epoch", True) else (steps and steps.total) or None
            unit = "epochs" if entry.get("by_epoch", True) else "iterations"
            if length is not None:
                _one_schedule(key, entry, length, unit, problems, notes)
    return problems, notes


def _one_schedule(
    key: str,
    entry: Mapping[str, Any],
    length: int,
    unit: str,
    problems: list[Finding],
    notes: list[Finding],
) -> None:
    name = str(entry.get("type", ""))
    begin, end = entry.get("begin", 0), entry.get("end")
    rising = name.startswith(("Linear", "Constant")) and end is not None
    warm_key, warm = ("end", end) if rising else ("warmup", entry.get("warmup"))
    if isinstance(warm, int) and warm > length:
        text = f"warm-up of {warm} {unit}, but training ends after {length}: never the full rate"
        problems.append(Finding(f"{key}.{warm_key}", text))
    elif isinstance(begin, int) and begin >= length:
        notes.append(Finding(f"{key}.begin", f"{begin}: never starts within {length} {unit}"))
    cut = entry.get("T_max")
    if isinstance(cut, int) and begin + cut > length:
        text = f"{cut}, but training ends after {length} {unit}: the schedule is cut off"
        notes.append(Finding(f"{key}.T_max", text))
    milestones = entry.get("milestones")
    late = [m for m in milestones if isinstance(m, int) and m >= length] if milestones else []
    if late:
        text = f"{', '.join(map(str, late))} never come: training ends after {length} {unit}"
        none = len(late) == len(milestones or ())
        if none:
            text += ", the rate never falls. Set milestones within them"
        (problems if none else notes).append(Finding(f"{key}.milestones", text))


def hooks(cfg: Mapping[str, Any], num_classes: int | None) -> Iterator[Finding]:
    """Metrics that hooks wait for exist; intervals are possible."""
    names = metric_names(cfg, num_classes)
    for key, hook in _hooks(cfg):
        watched = hook.get("save_best", hook.get("monitor"))
        field = "save_best" if "save_best" in hook else "monitor"
        for metric in watched if isinstance(watched, list | tuple) else [watched]:
            if isinstance(metric, str) and metric != "auto" and names is not None:
                yield from _metric(f"{key}.{field}", metric, names)
        interval = hook.get("interval")
        if isinstance(interval, int) and (interval == 0 or interval < -1):
            yield Finding(f"{key}.interval", f"{interval}; allowed: 1 and more, or -1 for never")
    loop = cfg.get("train_cfg")
    interval = loop.get("val_interval", 1) if isinstance(loop, Mapping) else 1
    if isinstance(interval, int) and interval < 1:
        yield Finding("train_cfg.val_interval", f"{interval}; allowed: 1 and more")


def _metric(key: str, metric: str, names: set[str]) -> Iterator[Finding]:
    if not names:
        yield Finding(key, f"'{metric}', but there is no validation (val_evaluator is missing)")
    elif metric not in names:
        match = nearest(metric, names)
        hint = f"did you mean '{match}'? " if match else ""
        yield Finding(
            key, f"validation gives no '{metric}'; {hint}it gives {', '.join(sorted(names))}"
        )


def _hooks(cfg: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    default, custom = cfg.get("default_hooks"), cfg.get("custom_hooks")
    for name, hook in default.items() if isinstance(default, Mapping) else ():
        if isinstance(hook, Mapping):
            yield f"default_hooks.{name}", hook
    for index, hook in enumerate(custom if isinstance(custom, list | tuple) else ()):
        if isinstance(hook, Mapping):
            yield f"custom_hooks.{index}", hook
