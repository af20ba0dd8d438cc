"""Shared fixtures. Threads are limited here, before torch loads: pools dominate test time."""

from __future__ import annotations

import os
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("MKL_NUM_THREADS", "1")
os.environ.setdefault("WANDB_MODE", "offline")

import pytest

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="session")
def repo_root() -> Path:
    return ROOT


@pytest.fixture(scope="session")
def golden_dir() -> Path:
    """Folder of the reference runs; set POLAFORMER_GOLDEN to point elsewhere."""
    folder = Path(os.environ.get("POLAFORMER_GOLDEN", ROOT.parent / "shared" / "golden"))
    if not folder.is_dir():
        pytest.skip(f"no reference runs at {folder}; set POLAFORMER_GOLDEN")
    return folder
