"""Choices and ranges of single values whose reader would refuse them late, or not at all."""

from __future__ import annotations

import importlib.util
import logging
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from polaformer.config.shapes import found_at
from polaformer.errors import did_you_mean

MAX_SEED = 2**32 - 1
"""numpy takes seeds of 32 bits."""


@dataclass(frozen=True)
class Range:
    """Numbers from ``low`` to ``high``, or one of ``also``."""

    low: float
    high: float = math.inf
    whole: bool = False
    above: bool = False
    """Whether ``low`` itself is not allowed."""
    also: tuple[tuple[float, str], ...] = ()
    """Further values and what each means."""

    def holds(self, value: Any) -> bool:
        """Whether a value is a number in the range; None is left to the type check."""
        if value is None:
            return True
        kinds = int if self.whole else (int, float)
        if not isinstance(value, kinds) or isinstance(value, bool):
            return False
        if value in dict(self.also):
            return True
        return self.low <= value <= self.high and not (self.above and value == self.low)

    def __str__(self) -> str:
        if self.above:
            text = f"above {self.low:g}"
        elif self.high == math.inf:
            text = f"{self.low:g} and more"
        else:
            text = f"{self.low} to {self.high}"
        whole = ", whole numbers" if self.whole and self.high != math.inf else ""
        return text + whole + "".join(f", or {value} for {what}" for value, what in self.also)


_SHARE = Range(0, 1)
_COUNT = Range(1, whole=True)
_PREPROCESSOR = "model.data_preprocessor"
_HEADS = ("model.decode_head", "model.auxiliary_head", "model.auxiliary_head.*")
_MIXUP = f"{_PREPROCESSOR}.mixup"

_LOADERS = ("train_dataloader", "val_dataloader", "test_dataloader")
_DEPTHS = ("dataset", "dataset.dataset", "dataset.datasets.*")

RANGES = {
    "randomness.seed": Range(0, MAX_SEED, whole=True),
    "auto_scale_lr.base_batch_size": _COUNT,
    "optim_wrapper.accumulative_counts": _COUNT,
    "optim_wrapper.clip_grad.max_norm": Range(0, above=True),
    "optim_wrapper.clip_grad.clip_value": Range(0, above=True),
    "default_hooks.checkpoint.max_keep_ckpts": Range(1, whole=True, also=((-1, "all"),)),
    f"{_PREPROCESSOR}.label_smoothing": _SHARE,
    f"{_PREPROCESSOR}.random_erasing.prob": _SHARE,
    f"{_PREPROCESSOR}.random_erasing.count": _COUNT,
    f"{_MIXUP}.prob": _SHARE,
    f"{_MIXUP}.switch_prob": _SHARE,
    f"{_MIXUP}.mixup_alpha": Range(0),
    f"{_MIXUP}.cutmix_alpha": Range(0),
    **{f"{head}.sampler.thresh": _SHARE for head in _HEADS},
    **{f"{head}.sampler.min_kept": Range(2, whole=True) for head in _HEADS},
    **{f"{head}.threshold": _SHARE for head in _HEADS},
    **{f"{loader}.{data}.min_size": Range(0) for loader in _LOADERS for data in _DEPTHS},
}
"""Dotted key -> numbers that are allowed there."""

_CHECKS = ("auto", "decode", "header", "none")

CHOICES: dict[str, tuple[str, ...]] = {
    "launcher": ("none", "pytorch", "slurm", "mpi"),
    "log_level": ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL"),
    "env_cfg.mp_cfg.mp_start_method": ("fork", "spawn", "forkserver"),
    "optim_wrapper.dtype": ("float16", "bfloat16", "float32", "float64"),
    **{f"{loader}.dataset.check": _CHECKS for loader in _LOADERS},
}
"""Dotted key -> words that are allowed there."""

FLAGS = (
    "env_cfg.cudnn_benchmark",
    "log_processor.by_epoch",
    "param_scheduler.convert_to_iter_based",
    "param_scheduler.*.convert_to_iter_based",
)
"""Keys of which only True and False make sense, though any value would be taken for one."""


def wrong_values(cfg: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Key and sentence for every value outside of ``RANGES``, ``CHOICES`` and ``FLAGS``."""
    for pattern, allowed in RANGES.items():
        for key, value in found_at(cfg, pattern):
            if not allowed.holds(value):
                yield key, f"{value!r}; allowed: {allowed}"
    for pattern, words in CHOICES.items():
        for key, value in found_at(cfg, pattern):
            if not _may_be(key, value, words, cfg):
                hint = did_you_mean(str(value), words)
                yield key, f"{value!r}; {hint + ' ' if hint else ''}allowed: {', '.join(words)}"
    for pattern in FLAGS:
        for key, value in found_at(cfg, pattern):
            if not (value is None or isinstance(value, bool)):
                yield key, f"expects True or False, got {value!r}"
    yield from _scope(cfg.get("default_scope"))


def _may_be(key: str, value: Any, words: tuple[str, ...], cfg: Mapping[str, Any]) -> bool:
    if value is None or value in words:
        return True
    if key == "log_level":
        return isinstance(value, str) and isinstance(logging.getLevelName(value), int)
    if key.endswith(".dataset.check"):  # what 'check' means to foreign data sets is theirs
        kind = cfg[key.split(".")[0]]["dataset"].get("type")
        return not str(kind).startswith("polaformer.")
    return key.endswith("dtype") and type(value).__module__ == "torch"


def _scope(scope: Any) -> Iterator[tuple[str, str]]:
    if not isinstance(scope, str):
        return
    from mmengine.registry import MODELS

    known = ["mmengine", *MODELS.children]
    if scope not in known and not _has_registry(scope):
        hint = did_you_mean(scope, known)
        text = f"no package '{scope}' with registries is installed"
        yield "default_scope", f"{text}; {hint or 'known: ' + ', '.join(known)}"


def _has_registry(package: str) -> bool:
    try:
        return importlib.util.find_spec(f"{package}.registry") is not None
    except (ImportError, ValueError):
        return False
