"""Where a config must hold a dict, a dict with ``type``, or a list of such."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from polaformer.errors import did_you_mean


@dataclass(frozen=True)
class Shape:
    """What stands at a key; ``typed`` dicts need the key ``type``."""

    typed: bool = True
    none: bool = False
    listed: bool = False
    """Whether a list of such dicts may stand there too."""
    function: bool = False
    """Whether a function may stand there too."""

    def __str__(self) -> str:
        text = "a dict with type" if self.typed else "a dict"
        text += " or a list of such" if self.listed else ""
        return text + (", or None" if self.none else "")


_PART = Shape(none=True, listed=True)
_LOADER = {
    "dataset": Shape(),
    "sampler": Shape(),
    "batch_sampler": Shape(none=True),
    "collate_fn": Shape(function=True),
    "worker_init_fn": Shape(none=True, function=True),
}
_LOADERS = ("train_dataloader", "val_dataloader", "test_dataloader")

SHAPES = {
    "model": Shape(none=True),
    "model.backbone": _PART,
    "model.neck": _PART,
    "model.head": _PART,
    "model.data_preprocessor": Shape(typed=False, none=True),
    "custom_hooks.*": Shape(),
    "default_hooks.*": Shape(typed=False, none=True),
    "val_evaluator": _PART,
    "test_evaluator": _PART,
    "param_scheduler": _PART,
    "optim_wrapper.optimizer": Shape(),
    "optim_wrapper.paramwise_cfg": Shape(typed=False, none=True),
    "optim_wrapper.clip_grad": Shape(typed=False, none=True),
    "visualizer.vis_backends.*": Shape(),
    "env_cfg.mp_cfg": Shape(typed=False),
    "env_cfg.dist_cfg": Shape(typed=False),
    **{f"{split}.{key}": shape for split in _LOADERS for key, shape in _LOADER.items()},
}
"""Dotted key -> what must stand there if the key is given; ``*`` is every entry."""


def misshapen(cfg: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Key and sentence for everything of another shape than ``SHAPES`` says."""
    for pattern, shape in SHAPES.items():
        for key, value in found_at(cfg, pattern):
            yield from _mistakes(key, value, shape)


def _mistakes(key: str, value: Any, shape: Shape) -> Iterator[tuple[str, str]]:
    if (value is None and shape.none) or (shape.function and callable(value)):
        return
    if shape.listed and isinstance(value, list | tuple):
        for index, item in enumerate(value):
            yield from _mistakes(f"{key}.{index}", item, Shape(shape.typed))
    elif not isinstance(value, Mapping):
        yield key, f"expects {shape}, got {value!r}"
    elif shape.typed and "type" not in value and not _untyped(key, value):
        names = [name for name in value if did_you_mean(name, ["type"])]
        meant = f"; '{names[0]}' looks like it" if names else ""
        yield key, f"a dict here needs the key 'type'{meant}"


def _untyped(key: str, value: Mapping[str, Any]) -> bool:
    """Schedulers by the name of their optimiser, a list of metrics: mmengine takes them so too."""
    if key == "param_scheduler":
        return all(isinstance(entry, Mapping | list) for entry in value.values())
    return key.endswith("_evaluator") and "metrics" in value


def found_at(cfg: Mapping[str, Any], pattern: str) -> list[tuple[str, Any]]:
    """Every key that ``pattern`` names in ``cfg``, with its value."""
    # mmengine's Config is no Mapping, only what stands in it.
    found: list[tuple[str, Any]] = [("", {name: cfg[name] for name in cfg})]
    for part in pattern.split("."):
        below = []
        for key, node in found:
            for name, child in _entries(node):
                if part in ("*", name):
                    below.append((f"{key}.{name}".lstrip("."), child))
        found = below
    return found


def _entries(node: Any) -> list[tuple[str, Any]]:
    if isinstance(node, Mapping):
        return [(str(name), node[name]) for name in node]
    if isinstance(node, list | tuple):
        return [(str(index), child) for index, child in enumerate(node)]
    return []
