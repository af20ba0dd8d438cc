"""Metrics."""

from __future__ import annotations

from polaformer.evaluation.accuracy import Accuracy
from polaformer.evaluation.coco import CocoMetric
from polaformer.evaluation.segmentation import SegmentationMetric

__all__ = ["Accuracy", "CocoMetric", "SegmentationMetric"]
