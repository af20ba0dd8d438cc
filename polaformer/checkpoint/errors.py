"""Errors about weight files."""

from __future__ import annotations

from polaformer.errors import UserError


class CheckpointError(UserError):
    """A weight file that cannot be read, written, or matched to a model."""


class UnsafeCheckpointError(CheckpointError):
    """A weight file that would run code if it were unpickled."""
