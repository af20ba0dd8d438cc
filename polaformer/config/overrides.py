"""Overrides from a command line: strict about the path, careful about the type."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from polaformer.config import schema
from polaformer.config.keys import Context, Finding, keywords_at, unknown_keyword
from polaformer.config.literal import parse_assignment
from polaformer.config.signatures import Keywords, expected, mismatch
from polaformer.errors import UserError, did_you_mean

CLI = "--cfg-options"


def parse_overrides(overrides: Mapping[str, Any] | Sequence[str] | None) -> dict[str, Any]:
    """``['a.b=1']`` or ``{'a.b': 1}`` as ``{'a.b': 1}``; later entries win."""
    if overrides is None:
        return {}
    if isinstance(overrides, Mapping):
        return dict(overrides)
    if isinstance(overrides, str):
        overrides = [overrides]
    return dict(parse_assignment(text) for text in overrides)


def apply_overrides(cfg: Any, overrides: Mapping[str, Any]) -> list[Finding]:
    """Set every override in ``cfg`` in place; returns one finding for each that cannot be set."""
    findings = []
    for key, value in overrides.items():
        try:
            _set(cfg, key, value)
        except UserError as error:
            findings.append(Finding(key, str(error)))
    return findings


def _set(cfg: Any, key: str, value: Any) -> None:
    parts = key.split(".")
    if parts[0] not in cfg and parts[0] not in schema.top_level_keys():
        hint = schema.meant_at_the_top(parts[0])
        raise UserError(f"unknown key '{parts[0]}'; {hint}".rstrip("; "))
    if len(parts) > 1 and parts[0] not in cfg:
        cfg[parts[0]] = {}
    node = cfg
    for depth, part in enumerate(parts[:-1]):
        node = _step(cfg, node, parts, depth, part)
    if parts[-1] == "_delete_":
        _clear(node, parts, value)
    else:
        _assign(cfg, node, parts, _plain(value))


def _clear(node: Any, parts: list[str], value: Any) -> None:
    """``a.b._delete_=True`` empties ``a.b``; what follows it fills it anew."""
    if not hasattr(node, "keys"):
        raise UserError(f"'{'.'.join(parts[:-1])}' is {node!r}, which has no key '_delete_'")
    if type(value) is not bool:
        raise UserError(f"_delete_ expects bool, got {value!r}")
    if value:
        node.clear()


def _plain(value: Any) -> Any:
    """``value`` without ``_delete_``: an override of a dict replaces it in any case."""
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items() if key != "_delete_"}
    return type(value)(map(_plain, value)) if type(value) in (list, tuple) else value


def _step(cfg: Any, node: Any, parts: list[str], depth: int, part: str) -> Any:
    if isinstance(node, list | tuple):
        return node[_index(node, parts, depth)]
    if not hasattr(node, "keys"):
        here = ".".join(parts[:depth])
        raise UserError(f"'{here}' is {node!r}, which has no key '{part}'")
    if part not in node or node[part] is None:
        _check_key(cfg, parts, depth)
        node[part] = {}
    return node[part]


def _index(node: Sequence, parts: list[str], depth: int) -> int:
    here, part = ".".join(parts[:depth]), parts[depth]
    if not part.isdigit():
        raise UserError(f"'{here}' is a list: write {here}.0 for its first entry, not '{part}'")
    if int(part) >= len(node):
        noun = "entry" if len(node) == 1 else "entries"
        upper = f" (0 to {len(node) - 1})" if node else ""
        raise UserError(f"'{here}' has {len(node)} {noun}{upper}, so there is no {here}.{part}")
    return int(part)


def _assign(cfg: Any, node: Any, parts: list[str], value: Any) -> None:
    last = parts[-1]
    if isinstance(node, tuple):
        raise UserError(f"'{'.'.join(parts[:-1])}' is a tuple: set it as a whole")
    if isinstance(node, list):
        index = _index(node, parts, len(parts) - 1)
        node[index] = _typed(last, value, node[index], _hint(None, last))
        return
    if not hasattr(node, "keys"):
        raise UserError(f"'{'.'.join(parts[:-1])}' is {node!r}, which has no key '{last}'")
    accepted = _check_key(cfg, parts, len(parts) - 1)
    node[last] = _typed(last, value, node.get(last), _hint(accepted, last))


def _check_key(cfg: Any, parts: list[str], depth: int) -> Keywords | None:
    """Refuse a key that is neither in the config nor accepted there; returns what is accepted."""
    parent, last = ".".join(parts[:depth]), parts[depth]
    if not parent:
        return None
    found = keywords_at(cfg, parent)
    node = cfg
    for part in parts[:depth]:
        node = node[int(part)] if isinstance(node, list | tuple) else node[part]
    if last in node or last in ("type", "_scope_"):
        return found[1] if found else None
    if found is not None:
        owner, keys = found
        if not keys.accepts(last):
            raise UserError(unknown_keyword(owner, last, keys))
        return keys
    if parent == "default_hooks" and (depth == len(parts) - 1 or last in _default_hooks(cfg)):
        return None
    if parts[depth - 1] in schema.FREE_KEYS or parts[depth - 1].endswith("_kwargs"):
        return None
    if "." in parent and parent.partition(".")[0] != "default_hooks" and not node:
        return None
    hint = did_you_mean(last, list(node)) or f"it has {', '.join(node)}"
    raise UserError(f"'{parent}' has no key '{last}'; {hint}")


def _default_hooks(cfg: Any) -> dict[str, Any]:
    return schema.default_hooks(Context.of(cfg).runner)


def _hint(keys: Keywords | None, name: str) -> Any:
    return keys.hint(name) if keys is not None else Any


def _typed(name: str, new: Any, old: Any, hint: Any) -> Any:
    """``new`` in the type that belongs there; raises UserError if it is of another kind."""
    if type(old) is float and type(new) is int:
        new = float(new)
    if isinstance(old, list | tuple) and isinstance(new, list | tuple):
        new = type(old)(new)
    wanted = mismatch(new, hint)
    if wanted:
        raise UserError(f"{name} expects {wanted}, got {new!r}")
    if expected(hint) is not None:
        return new
    kinds = (bool, int, float)
    if type(old) in kinds and new is not None and not _number_like(old, new):
        raise UserError(f"{name} expects {type(old).__name__}, got {new!r}")
    if isinstance(old, list | tuple) and isinstance(new, int | float | str):
        raise UserError(f"{name} expects a list, got {new!r}")
    if isinstance(old, Mapping) and isinstance(new, int | float | list | tuple):
        raise UserError(f"{name} expects a dict, got {new!r}")
    if isinstance(old, str) and isinstance(new, int | float):
        raise UserError(f"{name} expects str, got {new!r}; write {name}=\"'{new}'\" for a string")
    return new


def _number_like(old: Any, new: Any) -> bool:
    if type(old) is bool:
        return type(new) is bool
    if type(old) is int:
        return type(new) is int
    return type(new) in (int, float)
