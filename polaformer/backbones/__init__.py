"""Backbones, one family per file; importing the package registers them all."""

from __future__ import annotations

from typing import Any

from polaformer.backbones.base import Backbone
from polaformer.backbones.pvt import PolaPVT
from polaformer.backbones.swin import PolaSwin
from polaformer.backbones.timm import TimmBackbone
from polaformer.registry import MODELS

__all__ = ["Backbone", "PolaPVT", "PolaSwin", "TimmBackbone", "build_backbone", "list_backbones"]


def list_backbones() -> list[str]:
    """Names of all registered backbones, as a config writes them."""
    MODELS.import_from_location()
    return sorted(name for name, cls in MODELS.module_dict.items() if issubclass(cls, Backbone))


def build_backbone(name: str, **arguments: Any) -> Backbone:
    """Build a registered backbone, such as ``build_backbone('PolaSwin', arch='tiny')``."""
    return MODELS.build({"type": name, **arguments})
