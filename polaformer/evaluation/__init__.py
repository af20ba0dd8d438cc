"""Metrics."""

from __future__ import annotations

from polaformer.evaluation.accuracy import Accuracy
from polaformer.evaluation.coco import CocoMetric

__all__ = ["Accuracy", "CocoMetric"]
