"""Fixtures of the data set tests."""

from __future__ import annotations

from pathlib import Path

import pytest
from picture_sets import write_classes


@pytest.fixture
def colour_folders(tmp_path: Path) -> Path:
    """12 JPEG of 64x64 pixels in 3 class folders."""
    return write_classes(tmp_path / "colours")
