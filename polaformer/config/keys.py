"""Keywords and types of every dict in a config, checked against what they will be given to."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from polaformer.config import schema
from polaformer.config.detector_keys import POPPED, REGISTERED, Model, keys_read
from polaformer.config.names import nearest_type, own_names
from polaformer.config.shapes import misshapen
from polaformer.config.signatures import (
    INJECTED,
    Keywords,
    keywords_of,
    mismatch,
    resolve,
    resolve_anywhere,
)
from polaformer.config.values import wrong_values
from polaformer.errors import did_you_mean

INTERNAL = frozenset({"type", "_scope_", "_delete_"})
FOREIGN = frozenset({"Albu", "mmdet.Albu"})
"""Classes that hand what stands in them to a library without registries."""


@dataclass(frozen=True)
class Finding:
    """One mistake: the dotted key it stands at and what is wrong, in a sentence."""

    key: str
    text: str
    absent: bool = False
    """Whether it is a file that is not on this machine."""
    because: str = ""
    """Another key that may have to be changed instead."""
    note: bool = False
    """Whether it is worth knowing, but no reason not to train."""


def _words(kinds: tuple[type, ...]) -> str:
    return " or ".join(
        "a list" if kind is list else "a dict" for kind in kinds if kind is not tuple
    )


@dataclass(frozen=True)
class Context:
    """What the meaning of a name depends on."""

    scope: str | None
    runner: Any
    model: Model

    @classmethod
    def of(cls, cfg: Mapping[str, Any]) -> Context:
        """The context of a whole config."""
        scope = cfg.get("default_scope")
        scope = scope if isinstance(scope, str) else None
        kind = cfg.get("runner_type")
        runner = None if kind is None else resolve(kind, "RUNNERS", scope)
        return cls(scope, runner, Model.of(cfg))


def find_mistakes(cfg: Mapping[str, Any]) -> list[Finding]:
    """All unknown keywords, unknown types and values of a clearly wrong type in a config."""
    context = Context.of(cfg)
    found = [
        Finding(key, f"unknown key; {schema.meant_at_the_top(key)}".rstrip("; "))
        for key in cfg
        if key not in schema.top_level_keys()
    ]
    for key, value in cfg.items():
        wanted = schema.expected_container(key)
        if wanted is not None and value is not None and not isinstance(value, wanted):
            found.append(Finding(key, f"expects {_words(wanted)}, got {value!r}"))
            continue
        wrong = schema.single_mismatch(key, value)
        if wrong is not None:
            found.append(Finding(key, f"expects {wrong}, got {value!r}"))
        found += _walk(key, value, schema.TOP_KINDS.get(key), context)
    if cfg.get("runner_type") is not None and context.runner is None:
        found.append(_unknown_type("runner_type", cfg["runner_type"], "RUNNERS"))
    told = {finding.key for finding in found}
    further = (*misshapen(cfg), *wrong_values(cfg))
    return found + [Finding(key, text) for key, text in further if key not in told]


def keywords_at(cfg: Mapping[str, Any], path: str) -> tuple[str, Keywords] | None:
    """Owner and accepted keywords of the dict at ``path``, or None if anything may stand there."""
    value: Any = cfg
    kind: str | None = None
    for index, part in enumerate(path.split(".")):
        kind = _child_kind(part, kind) if index else schema.TOP_KINDS.get(part)
        value = value[int(part)] if isinstance(value, list | tuple) else value[part]
    if not isinstance(value, Mapping):
        return None
    found = _accepted(path, value, kind, Context.of(cfg))
    return None if isinstance(found, Finding) else found


def _walk(path: str, value: Any, kind: str | None, context: Context) -> Iterator[Finding]:
    if isinstance(value, Mapping):
        yield from _dict(path, value, kind, context)
    elif isinstance(value, Sequence) and not isinstance(value, str):
        for index, item in enumerate(value):
            yield from _walk(f"{path}.{index}", item, kind, context)


def _dict(path: str, value: Mapping, kind: str | None, context: Context) -> Iterator[Finding]:
    context = replace(context, scope=value.get("_scope_") or context.scope)
    accepted = _accepted(path, value, kind, context)
    if isinstance(accepted, Finding):
        yield accepted
    elif accepted is not None:
        yield from _keywords(path, value, *accepted)
    for name in value:
        if _misspelt_instruction(name):
            hint = did_you_mean(str(name), sorted(INTERNAL - {"type"}))
            yield Finding(f"{path}.{name}", f"no instruction for merging is named so; {hint}")
    if value.get("type") in FOREIGN:
        return
    for key, child in value.items():
        last = str(key)
        if last in schema.FREE_KEYS or last.endswith("_kwargs"):
            continue
        yield from _walk(f"{path}.{last}", child, _child_kind(last, kind), context)


def _child_kind(key: str, parent: str | None) -> str | None:
    if parent in ("MODELS", "TASK_UTILS") and key in schema.MODEL_KINDS:
        return schema.MODEL_KINDS[key]
    return schema.CHILD_KINDS.get(key, parent)


def _accepted(
    path: str, value: Mapping, kind: str | None, context: Context
) -> tuple[str, Keywords] | Finding | None:
    untyped = schema.section(path, value, context.runner)
    if untyped is not None and (untyped.always or "type" not in value):
        return untyped.owner, untyped.keywords
    read = keys_read(path, value, context.model)
    if read is not None:
        return Finding(f"{path}.type", read) if isinstance(read, str) else read
    if "type" in value and kind is not None:
        return _typed(path, value, kind, context)
    if path.rpartition(".")[0] == "default_hooks":
        return _hook(path, value, context)
    return None


_HOOKS = ("runtime_info", "timer", "sampler_seed", "logger", "param_scheduler", "checkpoint")


def _hook(path: str, value: Mapping, context: Context) -> tuple[str, Keywords] | Finding | None:
    """A default hook without ``type``: our runner merges it into the one it has."""
    name = path.rpartition(".")[2]
    known = schema.default_hooks(context.runner)
    if name in known:
        return _typed(path, {**known[name], **value}, "HOOKS", context)
    hint = did_you_mean(name, known or _HOOKS)
    return Finding(path, f"no default hook has this name, and it has no type; {hint}".rstrip("; "))


def _typed(
    path: str, value: Mapping, kind: str, context: Context
) -> tuple[str, Keywords] | Finding | None:
    name = value["type"]
    target = resolve_anywhere(name, kind, context.scope)
    if target is None:
        foreign = _is_foreign(path, name, kind, context.scope)
        return None if foreign else _unknown_type(f"{path}.type", name, kind, context.scope)
    keys = keywords_of(target)
    if path == "optim_wrapper":
        keys = replace(keys, names=(*keys.names, "constructor", "paramwise_cfg"))
    if kind == "HOOKS":
        keys = replace(keys, names=(*keys.names, "priority"))
    if kind == "PARAM_SCHEDULERS":
        keys = replace(keys, names=(*keys.names, "convert_to_iter_based"))
    if kind == "FUNCTIONS":
        keys = replace(keys, required=())
    inner = resolve(value.get("resize_type"), kind, context.scope) if kind == "TRANSFORMS" else None
    if inner is not None:  # a choice of sizes hands its further keywords on to this one
        keys = replace(keys, names=(*keys.names, *keywords_of(inner).names))
    popped = POPPED.get(next((p for p in reversed(path.split(".")) if not p.isdigit()), ""), ())
    if kind == "MODELS" and popped:
        keys = replace(keys, names=(*keys.names, *popped))
    supplied = INJECTED.get(kind)
    required = () if supplied is None else tuple(n for n in keys.required if n not in supplied)
    names = tuple(n for n in keys.names if n not in (supplied or ()) or n in value)
    return getattr(target, "__name__", str(name)), replace(keys, names=names, required=required)


def _is_foreign(path: str, name: Any, kind: str, scope: str | None) -> bool:
    """Whether the type of a dict may be something else than a registered class."""
    known = REGISTERED.get(path.rpartition(".")[2])
    if known is not None and isinstance(name, str) and resolve(known, kind, scope) is not None:
        return False
    return path.endswith(("_cfg", "_trans")) and path not in schema.LOOPS


def unknown_keyword(owner: str, name: str, keys: Keywords) -> str:
    """The sentence about a keyword that ``owner`` does not take."""
    hint = did_you_mean(name, keys.names) or f"it takes {', '.join(keys.names) or 'none'}"
    return f"{owner} has no keyword '{name}'; {hint}"


def _unknown_type(key: str, name: Any, kind: str, scope: str | None = None) -> Finding:
    match = nearest_type(str(name), kind, scope)
    what = kind.lower().removesuffix("s").replace("_", " ")
    hint = f"did you mean '{match}'?" if match else f"ours: {', '.join(own_names(kind)) or 'none'}"
    return Finding(key, f"no {what} is named '{name}'; {hint}")


def _misspelt_instruction(name: Any) -> bool:
    return (
        isinstance(name, str)
        and name.startswith("_")
        and name not in INTERNAL
        and bool(did_you_mean(name, INTERNAL - {"type"}))
    )


def _keywords(path: str, value: Mapping, owner: str, keys: Keywords) -> Iterator[Finding]:
    for name, item in value.items():
        if name in INTERNAL or _misspelt_instruction(name):
            continue
        if not keys.accepts(str(name)):
            yield Finding(f"{path}.{name}", unknown_keyword(owner, str(name), keys))
            continue
        wanted = mismatch(item, keys.hint(str(name)))
        if wanted:
            yield Finding(f"{path}.{name}", f"{name} expects {wanted}, got {item!r}")
    for name in keys.required:
        if name not in value:
            yield Finding(path, f"{owner} needs the keyword '{name}'")
