"""What a class accepts: keyword names and simple types, read from its signature."""

from __future__ import annotations

import inspect
import sys
import types
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from importlib import import_module
from typing import Any

from polaformer.errors import nearest

KINDS = (
    "MODELS",
    "DATASETS",
    "TRANSFORMS",
    "DATA_SAMPLERS",
    "HOOKS",
    "METRICS",
    "EVALUATOR",
    "LOOPS",
    "RUNNERS",
    "OPTIMIZERS",
    "OPTIM_WRAPPERS",
    "OPTIM_WRAPPER_CONSTRUCTORS",
    "PARAM_SCHEDULERS",
    "VISUALIZERS",
    "VISBACKENDS",
    "LOG_PROCESSORS",
    "FUNCTIONS",
    "WEIGHT_INITIALIZERS",
    "MODEL_WRAPPERS",
    "TASK_UTILS",
)
"""mmengine's root registries, by name; ``ATTENTIONS`` is ours and stands beside them."""

INJECTED = {
    "DATA_SAMPLERS": {"dataset", "seed", "sampler", "batch_size"},
    "LOOPS": {"runner", "dataloader", "evaluator"},
    "OPTIMIZERS": {"params"},
    "OPTIM_WRAPPERS": {"optimizer"},
    "PARAM_SCHEDULERS": {"optimizer", "epoch_length", "param_name"},
    "RUNNERS": {"model", "work_dir"},
    "VISUALIZERS": {"name", "save_dir"},
    "VISBACKENDS": {"save_dir"},
    "HOOKS": set(),
    "METRICS": set(),
    "TRANSFORMS": set(),
    "DATASETS": set(),
}
"""Arguments that the builder of a kind supplies; kinds not listed may be given anything."""


@dataclass(frozen=True)
class Keywords:
    """The keyword arguments of a class or function."""

    names: tuple[str, ...]
    required: tuple[str, ...] = ()
    is_open: bool = False
    """True if any further keyword is accepted."""
    hints: tuple[tuple[str, Any], ...] = ()
    swallows: bool = False
    """True if further keywords are accepted and never read: a near miss is a misspelt one."""

    def accepts(self, name: str) -> bool:
        if self.swallows and name not in self.names:
            return nearest(name, self.names) is None
        return self.is_open or name in self.names

    def hint(self, name: str) -> Any:
        """The resolved annotation of a keyword, or ``typing.Any``."""
        return dict(self.hints).get(name, Any)


def resolve(name: Any, kind: str, scope: str | None) -> Callable[..., Any] | None:
    """The class that ``type=name`` builds in the registry ``kind``, or None if there is none."""
    if not isinstance(name, str):
        return name if callable(name) else None
    if kind == "ATTENTIONS":
        from polaformer.registry import ATTENTIONS

        return _get(ATTENTIONS, name)
    prefix, dot, _ = name.partition(".")
    if dot and prefix == "polaformer":  # no need to load another package for one of ours
        scope = prefix
    return _get(registry_of(kind, scope), name)


def registry_of(kind: str, scope: str | None) -> Any:
    """The registry that a build of ``kind`` looks in under a default scope."""
    import mmengine.registry

    registry = getattr(mmengine.registry, kind)
    if scope and scope != "mmengine" and scope not in registry.children:
        with suppress(ImportError):
            import_module(f"{scope}.registry")
    return registry.children.get(scope, registry)


def resolve_anywhere(name: Any, kind: str, scope: str | None) -> Callable[..., Any] | None:
    """As ``resolve``, trying every other registry after ``kind``."""
    for candidate in (kind, *(k for k in KINDS if k != kind)):
        found = resolve(name, candidate, scope)
        if found is not None:
            return found
    return None


def _get(registry: Any, name: str) -> Callable[..., Any] | None:
    try:
        return registry.get(name)
    except RuntimeError:
        return None


@lru_cache(maxsize=512)
def keywords_of(target: Callable[..., Any]) -> Keywords:
    """Keywords of a class or function, following ``**kwargs`` up the classes it inherits from.

    A ``**kwargs`` that no class closes leaves the result open, save for the two hooks of mmengine
    that hand theirs on to a known function.
    """
    names: dict[str, inspect.Parameter] = {}
    hints: dict[str, Any] = {}
    is_open, closed = True, _takes_nothing(target)
    several = inspect.isclass(target) and len(target.__bases__) > 1
    for function in _initialisers(target):
        try:
            parameters = list(inspect.signature(function).parameters.values())
        except (TypeError, ValueError):
            return Keywords(tuple(names), is_open=True)
        if inspect.isclass(target):
            parameters = parameters[1:]
        known = _hints(function)
        is_open = False
        for parameter in parameters:
            if parameter.kind is parameter.VAR_KEYWORD:
                is_open = True
            elif parameter.kind not in (parameter.VAR_POSITIONAL, parameter.POSITIONAL_ONLY):
                names.setdefault(parameter.name, parameter)
                hints.setdefault(parameter.name, _believed(parameter, known, function))
        closed = closed or not is_open
        # Of several bases, the next one in line need not be the one that is called.
        if closed and not (several and _hands_on(target)):
            break
    is_open = not closed
    forwarded = _forwarded(target) if is_open else None
    if forwarded is not None:
        names.update({name: _optional(name) for name in forwarded if name not in names})
        is_open = False
    required = tuple(n for n, p in names.items() if p.default is p.empty)
    swallows = is_open and getattr(target, "__module__", "").startswith(_SWALLOWING)
    return Keywords(tuple(names), required, is_open, tuple(hints.items()), swallows)


_SWALLOWING = ("mmdet.", "mmcv.", "mmseg.")
"""Packages whose classes take any keyword without a word and read only those they name."""

_WRONG_HINTS = frozenset(
    {
        *(f"{name}LocalVisualizer.vis_backends" for name in ("Det", "Track", "Seg")),
        "YOLOFHead.in_channels",
        "BucketingBBoxCoder.scale_factor",
        *(f"{name}.pad_val" for name in ("Mosaic", "MixUp", "CachedMosaic", "CachedMixUp")),
    }
)
"""Annotations of mmdet and mmseg that contradict their own recipes."""


def _hands_on(target: Callable[..., Any]) -> bool:
    """Whether the constructor of a class hands further keywords on."""
    own = inspect.signature(target).parameters.values()
    return any(parameter.kind is parameter.VAR_KEYWORD for parameter in own)


def _believed(parameter: inspect.Parameter, known: Mapping[str, Any], owner: Any) -> Any:
    """The annotation of a parameter, as far as its own default agrees with it."""
    hint = known.get(parameter.name, Any)
    if owner.__qualname__.replace("__init__", parameter.name) in _WRONG_HINTS:
        return Any
    if parameter.default is parameter.empty or mismatch(parameter.default, hint) is None:
        return hint
    return hint | None if parameter.default is None else Any


def _optional(name: str) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None)


def _takes_nothing(target: Callable[..., Any]) -> bool:
    """Whether a class has no constructor but Python's own."""
    return inspect.isclass(target) and not any(
        {"__init__", "__new__"} & vars(cls).keys() for cls in target.__mro__ if cls is not object
    )


def _initialisers(target: Callable[..., Any]) -> Iterator[Callable[..., Any]]:
    if not inspect.isclass(target):
        yield target
        return
    for cls in target.__mro__:
        if "__init__" in vars(cls) and cls is not object:
            yield vars(cls)["__init__"]
            if cls.__module__.startswith("torch.nn.modules.module"):
                return


def _hints(function: Callable[..., Any]) -> dict[str, Any]:
    try:
        return typing.get_type_hints(function)
    except Exception:  # one that names something not importable tells us nothing, the others do
        return dict(_single_hints(function))


def _single_hints(function: Callable[..., Any]) -> Iterator[tuple[str, Any]]:
    names = {**vars(typing), **getattr(function, "__globals__", {})}
    for name, hint in getattr(function, "__annotations__", {}).items():
        holder = types.SimpleNamespace(__annotations__={name: hint})
        with suppress(Exception):
            yield name, typing.get_type_hints(holder, names)[name]


def _forwarded(target: Callable[..., Any]) -> set[str] | None:
    """Keywords that mmengine's open hooks and mmcv's open resizes pass on, or None for others."""
    classes = target.__mro__ if inspect.isclass(target) else (target,)
    return next((found for found in map(_passed_on, classes) if found is not None), None)


def _passed_on(target: Callable[..., Any]) -> set[str] | None:
    name = getattr(target, "__name__", "")
    if name in ("RandomResize", "RandomChoiceResize"):
        resize = getattr(sys.modules[target.__module__], "Resize", None)
        return None if resize is None else set(keywords_of(resize).names)
    if not getattr(target, "__module__", "").startswith("mmengine.hooks"):
        return None
    if name == "CheckpointHook":
        from mmengine.runner import Runner

        return set(inspect.signature(Runner.save_checkpoint).parameters) - {"self"}
    if name == "EMAHook":
        from mmengine.model import ExponentialMovingAverage

        return set(inspect.signature(ExponentialMovingAverage.__init__).parameters) - {"self"}
    return None


_PLAIN = (bool, int, float, str, type(None))


def expected(hint: Any) -> tuple[type, ...] | None:
    """The builtin types an annotation allows, or None if it allows others or says nothing."""
    allowed: list[type] = []
    for option in typing.get_args(hint) if _is_union(hint) else (hint,):
        origin = typing.get_origin(option) or option
        if origin is typing.Literal:
            allowed += [type(choice) for choice in typing.get_args(option)]
        elif origin in _PLAIN:
            allowed.append(origin)
        elif origin is None:
            allowed.append(type(None))
        elif getattr(origin, "__name__", "") == "Tensor":
            continue  # nothing that a text config can hold
        elif origin in (list, tuple, Sequence, Iterable):
            allowed += [list, tuple]
        elif origin in (dict, Mapping):
            allowed.append(dict)
        else:
            return None
    return tuple(dict.fromkeys(allowed)) or None


def _is_union(hint: Any) -> bool:
    return typing.get_origin(hint) in (typing.Union, types.UnionType)


def mismatch(value: Any, hint: Any) -> str | None:
    """What the annotation expects if ``value`` is clearly not it, else None."""
    allowed = expected(hint)
    if allowed is None or isinstance(value, bool):
        fits = allowed is None or bool in allowed
    else:
        fits = isinstance(value, allowed) or (float in allowed and isinstance(value, int))
    if fits:
        return None
    names = ["None" if t is type(None) else t.__name__ for t in allowed or ()]
    return " or ".join(names)
