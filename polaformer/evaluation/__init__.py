"""Metrics."""

from __future__ import annotations

from polaformer.evaluation.accuracy import Accuracy

__all__ = ["Accuracy"]
