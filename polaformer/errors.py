"""Errors that are the user's to mend, and the words that help to mend them."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class UserError(Exception):
    """A mistake in a config, a command line, a data folder or a weight file.

    The message says what is wrong, where, and what is allowed. Tools print it without a traceback
    and exit with code 2.
    """


def nearest(word: str, choices: Iterable[str]) -> str | None:
    """The choice most similar to ``word``, or None if nothing is close."""
    names = [str(choice) for choice in choices]
    by_lower = {name.lower(): name for name in reversed(names)}
    found = difflib.get_close_matches(str(word).lower(), list(by_lower), n=1, cutoff=0.6)
    return by_lower[found[0]] if found else None


def did_you_mean(word: str, choices: Iterable[str]) -> str:
    """A sentence naming the nearest of ``choices``, or an empty string if nothing is close."""
    match = nearest(word, choices)
    return f"did you mean '{match}'?" if match else ""
