"""What constructors raise for a value they cannot take, and how it is told."""

from __future__ import annotations

import traceback

from polaformer.errors import UserError

REFUSALS = (
    UserError,
    ValueError,
    TypeError,
    AssertionError,
    LookupError,
    AttributeError,
    ArithmeticError,
)


def refusal(error: BaseException) -> str:
    """The exception as one sentence; what is none by itself is led by the exception's name."""
    text = str(error.args[0]) if isinstance(error, KeyError) and error.args else str(error)
    text = " ".join(text.split()) or raising_line(error)
    if isinstance(error, AssertionError) and text.startswith("assert "):
        return f"refuses its values: {text.removeprefix('assert ')} does not hold"
    sentence = isinstance(error, UserError | ValueError | AssertionError | KeyError) and " " in text
    return text if sentence else f"{type(error).__name__}: {text}".rstrip(": ")


def raising_line(error: BaseException) -> str:
    """The line of code that raised, for exceptions that say nothing."""
    frames = traceback.extract_tb(error.__traceback__)
    return (frames[-1].line or "") if frames else ""
