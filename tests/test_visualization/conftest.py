from __future__ import annotations

from conftest_visualization import finished_run

__all__ = ["finished_run"]
