"""Weight files: reading without running code, matching, resizing, converting, atomic writing."""

from __future__ import annotations

from polaformer.checkpoint.convert import detect
from polaformer.checkpoint.io import (
    CheckpointError,
    LoadReport,
    UnsafeCheckpointError,
    convert_file,
    find_state,
    load_weights,
    newest_valid,
    read_checkpoint,
    strip_prefixes,
    table_grids,
    write_checkpoint,
)

__all__ = [
    "CheckpointError",
    "LoadReport",
    "UnsafeCheckpointError",
    "convert_file",
    "detect",
    "find_state",
    "load_weights",
    "newest_valid",
    "read_checkpoint",
    "strip_prefixes",
    "table_grids",
    "write_checkpoint",
]
