"""Attention modules, one variant per file; importing the package registers every file here."""

from __future__ import annotations

import inspect
from importlib import import_module
from pkgutil import iter_modules
from typing import Any

from polaformer.attention.base import Attention
from polaformer.attention.pola import PolaAttention
from polaformer.attention.reduced import ReducedAttention, reduced_size
from polaformer.attention.schedule import parse_schedule
from polaformer.attention.softmax import SoftmaxAttention
from polaformer.attention.window import WindowAttention
from polaformer.errors import UserError, did_you_mean
from polaformer.registry import ATTENTIONS

__all__ = [
    "Attention",
    "PolaAttention",
    "ReducedAttention",
    "SoftmaxAttention",
    "WindowAttention",
    "build_attention",
    "list_attentions",
    "parse_schedule",
    "reduced_size",
]

for _module in iter_modules(__path__):
    import_module(f"{__name__}.{_module.name}")


def list_attentions() -> list[str]:
    """Names of all registered attentions, as a config writes them."""
    return ATTENTIONS.names()


def attention_class(config: dict[str, Any]) -> type[Attention]:
    """The class that ``config['type']`` names.

    Raises:
        UserError: For an unknown type or argument, naming the nearest one.
    """
    cls = ATTENTIONS.get(config["type"])
    if cls is None:
        hint = did_you_mean(config["type"], list_attentions())
        raise UserError(
            f"there is no attention '{config['type']}'; {hint + ' ' if hint else ''}"
            f"allowed: {', '.join(list_attentions())}"
        )
    allowed = [name for name in inspect.signature(cls.__init__).parameters if name != "self"]
    for key in config:
        if key != "type" and key not in allowed:
            hint = did_you_mean(key, allowed)
            raise UserError(
                f"attention '{config['type']}' has no argument '{key}'; "
                f"{hint + ' ' if hint else ''}allowed: {', '.join(allowed)}"
            )
    return cls


def build_attention(config: dict[str, Any] | str, **host: Any) -> Attention:
    """Build an attention from its config and what its backbone gives it.

    ``host`` holds dim, num_heads, grid_size and the like; the config wins where both name a value.
    """
    config = {"type": config} if isinstance(config, str) else dict(config)
    cls = attention_class(config)
    config.pop("type")
    return cls(**{**host, **config})
