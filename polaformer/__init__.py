"""PolaFormer: train vision models with polarity-aware linear attention.

Importing the package is cheap: torch and mmengine load when a name below is first used. It does
one thing: from here on mmdet and mmseg run on mmcv-lite, without mmcv's compiled extension.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from polaformer.compat import mmcv_ops
from polaformer.version import __version__

mmcv_ops.install()

_LAZY = {
    "build_backbone": "polaformer.backbones",
    "list_backbones": "polaformer.backbones",
    "build_attention": "polaformer.attention",
    "list_attentions": "polaformer.attention",
}

__all__ = ["__version__", "build_attention", "build_backbone", "list_attentions", "list_backbones"]


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        return getattr(import_module(_LAZY[name]), name)
    raise AttributeError(f"module 'polaformer' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *_LAZY])
