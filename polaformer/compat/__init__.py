"""Repairs of other libraries: the only folder that touches them.

Each patch says what it mends and when it can go.
"""

from __future__ import annotations


def apply() -> None:
    """Apply every repair once; calling it again changes nothing."""
