"""Fixtures of all tests of pictures and pages."""

from __future__ import annotations

from conftest_detection import detection_run
from conftest_segmentation import segmentation_run
from conftest_visualization import finished_run

__all__ = ["detection_run", "finished_run", "segmentation_run"]
