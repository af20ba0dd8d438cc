"""Data sets and their transforms."""

from __future__ import annotations

from polaformer.datasets.image_folder import ImageFolder
from polaformer.datasets.imagenet import ImageNet
from polaformer.datasets.layout import compare_classes
from polaformer.datasets.transforms import ClassificationTransform

__all__ = ["ClassificationTransform", "ImageFolder", "ImageNet", "compare_classes"]
