"""The top-level key ``classes``: one list of names for every head and every data set."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from polaformer.config.keys import Finding
from polaformer.config.signatures import keywords_of, resolve
from polaformer.config.source import ConfigFile, explain, show

KEY = "classes"
LOADERS = ("train_dataloader", "val_dataloader", "test_dataloader")

OTHER_CLASSES = frozenset({"rpn_head", "semantic_head"})
"""Parts of a detector that do not tell the classes of the objects: a region proposal is an object
or none, and a semantic branch has stuff classes of its own."""
OTHER_HEADS = frozenset({"STDCHead"})
"""Heads with classes of their own: STDC's learns edge or none from any label images."""
_HEADS = frozenset({"head", "bbox_head", "mask_head", "decode_head", "auxiliary_head"})


def expand_classes(
    cfg: Any, source: ConfigFile | None, overrides: Iterable[str]
) -> tuple[set[str], list[Finding]]:
    """Write ``cfg['classes']`` into the model and the data sets, in place.

    It sets ``num_classes`` of every head and ``classes`` of every data set that takes it. What a
    base says is replaced; another value in the file that sets ``classes``, in a file built on that
    one, or among ``overrides`` is a finding. Returns the keys that were set, and the findings.
    """
    names = cfg.get(KEY)
    if names is None:
        return set(), []
    wrong = _malformed(names)
    if wrong:
        return set(), [Finding(KEY, wrong)]
    names = tuple(names)
    cfg[KEY] = names
    expanded: set[str] = set()
    findings: list[Finding] = []
    for key, owner, last in (*heads(cfg), *_data_sets(cfg)):
        value: Any = len(names) if last == "num_classes" else names
        if _same(owner.get(last), value):
            continue
        if owner.get(last) is not None and _explicit(key, source, set(overrides)):
            findings.append(Finding(key, _conflict(last, owner[last], names)))
        else:
            owner[last] = value
            expanded.add(key)
    return expanded, findings


def _malformed(names: Any) -> str | None:
    """What is wrong with the form of ``classes``, or None."""
    if isinstance(names, str):
        return f"expects a list of names, got {names!r}; for one class write classes = ({names!r},)"
    if not isinstance(names, list | tuple):
        return f"expects a list of names, got {names!r}"
    if not names:
        return "no class is named; leave the key out to take all classes of the data"
    for name in names:
        if not isinstance(name, str):
            return f"a name of a class is a string, got {name!r}"
        if not name.strip():
            return f"a name of a class is empty: {name!r}"
    twice = sorted({name for name in names if list(names).count(name) > 1})
    return f"named more than once: {', '.join(twice)}" if twice else None


def _same(old: Any, new: Any) -> bool:
    return tuple(old) == new if isinstance(old, list | tuple) else old == new


def _conflict(last: str, old: Any, names: tuple[str, ...]) -> str:
    told = old if last == "num_classes" else "other names"
    return f"{told}, but 'classes' names {len(names)} ({_some(names)}); write only one of the two"


def _some(names: tuple[str, ...]) -> str:
    return ", ".join(names[:4]) + (", …" if len(names) > 4 else "")


def _explicit(key: str, source: ConfigFile | None, overrides: set[str]) -> bool:
    """Whether ``key`` was written where ``classes`` was or after it, so not to be replaced."""
    if any(key == name or key.startswith(f"{name}.") for name in overrides):
        return True
    if KEY in overrides or source is None:
        return False
    here, there = explain(source, KEY), explain(source, key)
    if not here or not there:
        return False
    files = {show(file.path): file for file in source.chain()}
    own = files.get(here[0].where.rpartition(":")[0])
    writer = files.get(there[0].where.rpartition(":")[0])
    return own is not None and writer is not None and own.path in {f.path for f in writer.chain()}


# Where the names go ----------------------------------------------------------------------------


def heads(cfg: Any) -> Iterator[tuple[str, Any, str]]:
    """Key, owner and last part of every ``num_classes`` in the model, also one left out."""
    model = cfg.get("model")
    if isinstance(model, Mapping):
        yield from _below("model", model, cfg.get("default_scope"))


def _below(path: str, node: Any, scope: Any) -> Iterator[tuple[str, Any, str]]:
    if isinstance(node, list | tuple):
        for index, child in enumerate(node):
            yield from _below(f"{path}.{index}", child, scope)
    if not isinstance(node, Mapping) or str(node.get("type")).rpartition(".")[2] in OTHER_HEADS:
        return
    if "num_classes" in node or _takes_number(path, node, scope):
        yield f"{path}.num_classes", node, "num_classes"
    for name in list(node):
        if name not in OTHER_CLASSES:
            yield from _below(f"{path}.{name}", node[name], scope)


def _takes_number(path: str, node: Mapping[str, Any], scope: Any) -> bool:
    """Whether a head leaves its number of classes to a default."""
    named = next((part for part in reversed(path.split(".")) if not part.isdigit()), "")
    return named in _HEADS and _takes(node, "num_classes", "MODELS", scope)


def _takes(node: Mapping[str, Any], name: str, kind: str, scope: Any) -> bool:
    scope = scope if isinstance(scope, str) else None
    target = resolve(node.get("type"), kind, scope)
    return target is not None and name in keywords_of(target).names


def _data_sets(cfg: Any) -> Iterator[tuple[str, Any, str]]:
    """Key, owner and last part of the names of every data set, also inside of other data sets."""
    for loader in LOADERS:
        node = cfg.get(loader)
        if isinstance(node, Mapping):
            yield from _sets_in(f"{loader}.dataset", node.get("dataset"), cfg.get("default_scope"))


def _sets_in(path: str, node: Any, scope: Any) -> Iterator[tuple[str, Any, str]]:
    if isinstance(node, list | tuple):
        for index, child in enumerate(node):
            yield from _sets_in(f"{path}.{index}", child, scope)
    if not isinstance(node, Mapping):
        return
    meta = node.get("metainfo")
    if isinstance(meta, Mapping) and KEY in meta:
        yield f"{path}.metainfo.{KEY}", meta, KEY
    elif _takes(node, KEY, "DATASETS", scope):
        yield f"{path}.{KEY}", node, KEY
    elif _takes(node, "metainfo", "DATASETS", scope):
        if meta is None:
            node["metainfo"] = {}  # type: ignore[index]
        yield f"{path}.metainfo.{KEY}", node["metainfo"], KEY
    for name in ("dataset", "datasets"):
        yield from _sets_in(f"{path}.{name}", node.get(name), scope)
