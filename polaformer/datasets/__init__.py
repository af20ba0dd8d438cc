"""Data sets and their transforms."""

from __future__ import annotations

from polaformer.datasets.coco import CocoDataset
from polaformer.datasets.image_folder import ImageFolder
from polaformer.datasets.imagenet import ImageNet
from polaformer.datasets.layout import compare_classes
from polaformer.datasets.load_image import LoadImage
from polaformer.datasets.load_mask import LoadMask
from polaformer.datasets.segmentation import SegmentationDataset
from polaformer.datasets.transforms import ClassificationTransform

__all__ = [
    "ClassificationTransform",
    "CocoDataset",
    "ImageFolder",
    "ImageNet",
    "LoadImage",
    "LoadMask",
    "SegmentationDataset",
    "compare_classes",
]
