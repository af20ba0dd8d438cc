"""What constructors raise for a value they cannot take, and how it is told."""

from __future__ import annotations

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
    text = " ".join(text.split())
    sentence = isinstance(error, UserError | ValueError | AssertionError | KeyError) and " " in text
    return text if sentence else f"{type(error).__name__}: {text}".rstrip(": ")
