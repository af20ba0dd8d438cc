"""What a training that counts iterations, not epochs, needs, and when it pauses."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from polaformer.config.keys import Finding
from polaformer.config.pipelines import kind_of, typed

INFINITE = "dict(type='polaformer.InfiniteSampler', shuffle=True)"
EPOCH = "dict(type='polaformer.EpochSampler', shuffle=True)"
_OURS = {"InfiniteSampler": "endless", "EpochSampler": "ending", "DefaultSampler": "ending"}


def length(cfg: Mapping[str, Any]) -> int | None:
    """The number of iterations of a config that counts them, or None."""
    loop = cfg.get("train_cfg")
    value = loop.get("max_iters") if isinstance(loop, Mapping) else None
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def samplers(cfg: Mapping[str, Any]) -> Iterator[Finding]:
    """A loop over iterations reads an endless stream, one over epochs a stream that ends."""
    loop, loader = cfg.get("train_cfg"), cfg.get("train_dataloader")
    if not isinstance(loop, Mapping) or not isinstance(loader, Mapping):
        return
    kind = kind_of(loader.get("sampler"))
    counts = "max_iters" in loop
    if counts and _OURS.get(kind) == "ending":
        text = f"{kind} ends after an epoch, but train_cfg counts iterations; write {INFINITE}"
        yield Finding("train_dataloader.sampler", text, because="train_cfg.max_iters")
    if not counts and "max_epochs" in loop and _OURS.get(kind) == "endless":
        text = f"{kind} never ends, but train_cfg counts epochs; write {EPOCH}"
        yield Finding("train_dataloader.sampler", text, because="train_cfg.max_epochs")
    if counts and loader.get("batch_sampler") is not None:
        text = "a loop over iterations takes its batches from batch_size; leave batch_sampler out"
        yield Finding("train_dataloader.batch_sampler", text)
    for split in ("val", "test"):
        other = cfg.get(f"{split}_dataloader")
        kind = kind_of(other.get("sampler")) if isinstance(other, Mapping) else ""
        if _OURS.get(kind) == "endless":
            ending = EPOCH.replace("True", "False")
            text = f"{kind} never ends, so {split} would not either; write {ending}"
            yield Finding(f"{split}_dataloader.sampler", text)


def schedules(cfg: Mapping[str, Any]) -> Iterator[Finding]:
    """Schedules count what the loop counts, and reach as far as it."""
    total = length(cfg)
    if total is None:
        return
    if total < 1:
        yield Finding("train_cfg.max_iters", f"{total}; allowed: 1 and more")
        return
    entries = [
        (key, entry)
        for key, entry in typed("param_scheduler", cfg.get("param_scheduler"))
        if not entry.get("convert_to_iter_based")
    ]
    for key, entry in entries:
        ours = str(entry.get("type")).startswith("polaformer.")
        if entry.get("by_epoch", not ours):
            text = "counts epochs, which this training never ends: the rate would stay where it is"
            yield Finding(f"{key}.by_epoch", f"{text}; write by_epoch=False")
            continue
        yield from _one(key, entry, total)
    yield from _last(entries, total)


def _one(key: str, entry: Mapping[str, Any], total: int) -> Iterator[Finding]:
    rising = kind_of(entry).startswith(("LinearLR", "ConstantLR"))
    end, begin = entry.get("end"), entry.get("begin", 0)
    warm = entry.get("warmup_iters")
    over = isinstance(end, int) and end > total
    if rising and over:
        text = f"warm-up of {end} iterations, but training ends after {total}: never the full rate"
        yield Finding(f"{key}.end", text)
    elif isinstance(begin, int) and begin >= total:
        text = f"{begin}: never starts within {total} iterations"
        yield Finding(f"{key}.begin", text, note=True)
    elif over:
        text = f"{end}, but training ends after {total} iterations: the schedule is cut off"
        yield Finding(f"{key}.end", text, note=True)
    if isinstance(warm, int) and warm > total // 10:
        text = f"{warm} is more than a tenth of {total} iterations; shortened to {total // 10}"
        yield Finding(f"{key}.warmup_iters", text, note=True)
    milestones = entry.get("milestones") or ()
    late = [m for m in milestones if isinstance(m, int) and m >= total]
    if late:
        text = f"{', '.join(map(str, late))} never come: training ends after {total} iterations"
        none = len(late) == len(milestones)
        text += ", the rate never falls. Set milestones within them" if none else ""
        yield Finding(f"{key}.milestones", text, note=not none)


def _last(entries: list[tuple[str, Mapping[str, Any]]], total: int) -> Iterator[Finding]:
    """Where the last schedule that ends by itself leaves the rate alone too early."""
    falling = [e for e in entries if not kind_of(e[1]).startswith(("LinearLR", "ConstantLR"))]
    given = [(entry.get("end"), key) for key, entry in falling]
    ends = [(end, key) for end, key in given if isinstance(end, int)]
    if not ends or len(ends) < len(given):
        return
    end, key = max(ends)
    if end < total:
        text = f"{end}, but training goes on to {total} iterations: the rate stays as it is then"
        yield Finding(f"{key}.end", f"{text}. Leave end out to follow the training", note=True)


def pauses(cfg: Mapping[str, Any]) -> tuple[str, list[Finding]]:
    """When a run over iterations validates and saves, in words, and what is odd about that."""
    total, loop = length(cfg), cfg.get("train_cfg")
    if total is None or total < 1 or not isinstance(loop, Mapping):
        return "", []
    notes: list[Finding] = []
    every, begin = loop.get("val_interval", 1000), loop.get("val_begin", 1)
    told = []
    validating = cfg.get("val_dataloader") is not None
    if validating and isinstance(every, int) and every >= 1:
        told.append(f"validation {_times(every, total)}")
        if every > total:
            text = f"{every} is more than {total} iterations: validated once, after the last"
            notes.append(Finding("train_cfg.val_interval", text, note=True))
    if validating and isinstance(begin, int) and begin > total:
        text = f"{begin} is more than {total} iterations: never validated; write val_begin=1"
        notes.append(Finding("train_cfg.val_begin", text))
    saving = _checkpoint(cfg)
    interval = saving.get("interval") or every
    if isinstance(interval, int) and interval >= 1:
        told.append(f"checkpoint {_times(interval, total)}")
        if interval > total and interval != every:
            text = f"{interval} is more than {total} iterations: saved once, after the last"
            notes.append(Finding("default_hooks.checkpoint.interval", text, note=True))
    return "; ".join(told), notes


def _checkpoint(cfg: Mapping[str, Any]) -> Mapping[str, Any]:
    hooks = cfg.get("default_hooks")
    hook = hooks.get("checkpoint") if isinstance(hooks, Mapping) else None
    return hook if isinstance(hook, Mapping) else {}


def _times(every: int, total: int) -> str:
    number = -(-total // every)
    if number == 1:
        return "after the last iteration"
    return f"every {every:,} iterations, {number} times"
