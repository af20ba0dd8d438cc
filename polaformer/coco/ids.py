"""Ids in COCO files, which annotations may write in another way than images and categories."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

Id = int | str

_DIGITS = 100  # Python refuses to make numbers of some thousands


def as_id(value: Any) -> Id | None:
    """``value`` as an id: a whole number, also written as 7.0 or "7", or another string."""
    if type(value) is int:
        return value
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, str) and value:
        short = value.isascii() and value.removeprefix("-").isdigit() and len(value) <= _DIGITS
        return int(value) if short and str(int(value)) == value else value
    return None


class Ids:
    """The ids that annotations may name; 7, "007" and "7.0" mean each other where one is known."""

    def __init__(self, known: Iterable[Id]) -> None:
        self.known = set(known)
        self.by_number: dict[int, list[Id]] | None = None

    def match(self, value: Any) -> Id | None:
        """The known id that ``value`` names; None if there is none, or more than one."""
        key = as_id(value)
        if key in self.known:
            return key
        number = None if key is None else _number_in(key)
        if number is None:
            return None
        if number in self.known:
            return number
        if self.by_number is None:
            self.by_number = {}
            for one in self.known:
                if (named := _number_in(one)) is not None:
                    self.by_number.setdefault(named, []).append(one)
        meant = self.by_number.get(number, [])
        return meant[0] if len(meant) == 1 else None


def _number_in(key: Id) -> int | None:
    """The whole number that an id writes, also with zeros before it or as 7.0."""
    if not isinstance(key, str):
        return key
    digits = re.fullmatch(rf"([0-9]{{1,{_DIGITS}}})(\.0+)?", key)
    return int(digits[1]) if digits else None
