"""Values typed on a command line: ``KEY=VALUE`` with Python literals, never evaluated."""

from __future__ import annotations

import ast
from typing import Any

from polaformer.errors import UserError

_WORDS = {"true": True, "false": False, "none": None}


class _NotALiteral(Exception):
    """The text is not one of the accepted literal forms, so it is a plain string."""


def parse_assignment(text: str) -> tuple[str, Any]:
    """Split ``KEY=VALUE`` and give the value its type; raises UserError without a key or '='."""
    key, equals, value = text.partition("=")
    key = key.strip()
    if not equals or not key:
        raise UserError(f"--cfg-options '{text}': expected KEY=VALUE, as in train_cfg.max_epochs=5")
    if any(not part for part in key.split(".")):
        raise UserError(f"--cfg-options '{text}': '{key}' has an empty part between dots")
    return key, parse_value(value)


def parse_value(text: str) -> Any:
    """The value a piece of text stands for.

    Numbers, True/False/None (any case), quoted strings, lists, tuples and dicts, also written
    ``dict(type='pola')`` and with bare words inside brackets; everything else is a string.
    """
    stripped = text.strip()
    if stripped.lower() in _WORDS:
        return _WORDS[stripped.lower()]
    try:
        node = ast.parse(stripped, mode="eval").body
        if isinstance(node, ast.Name | ast.Attribute):
            return text
        return _value(node)
    except (SyntaxError, ValueError, _NotALiteral):
        return text


def _value(node: ast.expr) -> Any:
    if isinstance(node, ast.Constant):
        return node.value
    if isinstance(node, ast.Name):
        return _WORDS.get(node.id.lower(), node.id)
    if isinstance(node, ast.Attribute):
        return f"{_value(node.value)}.{node.attr}"
    if isinstance(node, ast.List):
        return [_value(child) for child in node.elts]
    if isinstance(node, ast.Tuple):
        return tuple(_value(child) for child in node.elts)
    if isinstance(node, ast.Dict) and all(key is not None for key in node.keys):
        pairs = zip(node.keys, node.values, strict=True)
        return {_value(key): _value(value) for key, value in pairs if key is not None}
    if isinstance(node, ast.Call) and getattr(node.func, "id", None) == "dict" and not node.args:
        return {str(word.arg): _value(word.value) for word in node.keywords if word.arg}
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub | ast.UAdd):
        return ast.literal_eval(node)
    raise _NotALiteral
