"""Which attention each block gets, from one short value in a config.

=====================  ==============================================================
value                  meaning
=====================  ==============================================================
'pola'                 this attention in every block
'LLSS'                 one letter a stage: L = 'pola', S = 'softmax'
'pola*7+softmax'       seven, then one, repeated over all blocks of the network
['pola', 'softmax'…]   one entry a stage, or one entry a block of the whole network
[['pola', …], …]       one list a stage, one entry a block
dict(type='pola', …)   any entry may be a dict with arguments of that attention
=====================  ==============================================================
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import cycle, islice
from typing import Any

from polaformer.errors import UserError, did_you_mean
from polaformer.registry import ATTENTIONS

LETTERS = {"L": "pola", "S": "softmax"}

Schedule = list[list[dict[str, Any]]]


def parse_schedule(attention: Any, depths: Sequence[int], field: str = "attention") -> Schedule:
    """One attention config per block: ``schedule[stage][block]`` for stages of ``depths`` blocks.

    Raises:
        UserError: Naming ``field``, the value and what is allowed.
    """
    blocks = sum(depths)
    if isinstance(attention, str) and "*" not in attention and "+" not in attention:
        if attention.isupper():
            return _from_letters(attention, depths, field)
        _refuse_small_letters(attention, depths, field)
        flat = [_entry(attention, field)] * blocks
    elif isinstance(attention, str):
        flat = list(islice(cycle(_from_pattern(attention, field)), blocks))
    elif isinstance(attention, dict):
        flat = [_entry(attention, field)] * blocks
    elif isinstance(attention, Sequence):
        return _from_list(attention, depths, field)
    else:
        raise UserError(
            f"{field}={attention!r} is a {type(attention).__name__}; allowed: a name, stage "
            f"letters, a pattern such as 'pola*7+softmax', a dict with type, or a list of these"
        )
    return _by_stage([dict(entry) for entry in flat], depths)


def _by_stage(flat: list[dict[str, Any]], depths: Sequence[int]) -> Schedule:
    entries = iter(flat)
    return [list(islice(entries, depth)) for depth in depths]


def _refuse_small_letters(word: str, depths: Sequence[int], field: str) -> None:
    """A word such as 'llss' that is no attention but would be letters, one a stage."""
    letters = word.upper()
    if len(word) == len(depths) and set(letters) <= set(LETTERS) and word not in ATTENTIONS.names():
        raise UserError(f"{field}='{word}': stage letters are capital; did you mean '{letters}'?")


def _from_letters(letters: str, depths: Sequence[int], field: str) -> Schedule:
    if len(letters) != len(depths):
        raise UserError(
            f"{field}='{letters}' has {len(letters)} letters for {len(depths)} stages; "
            f"allowed: one of {'/'.join(LETTERS)} a stage, such as '{'L' * len(depths)}'"
        )
    for position, letter in enumerate(letters):
        if letter not in LETTERS:
            meanings = ", ".join(f"{key} = {name}" for key, name in LETTERS.items())
            raise UserError(
                f"{field}='{letters}': letter '{letter}' of stage {position + 1} means nothing; "
                f"allowed: {meanings}"
            )
    return [
        [{"type": LETTERS[letter]} for _ in range(depth)]
        for letter, depth in zip(letters, depths, strict=True)
    ]


def _from_pattern(pattern: str, field: str) -> list[dict[str, Any]]:
    entries: list[dict[str, Any]] = []
    for term in pattern.split("+"):
        name, star, count = term.strip().partition("*")
        if star and not (count.strip().isdigit() and int(count) > 0):
            raise UserError(
                f"{field}='{pattern}': '{term.strip()}' has no count; "
                f"allowed: NAME or NAME*COUNT joined by +, such as 'pola*7+softmax'"
            )
        entries += [_entry(name.strip(), field)] * (int(count) if star else 1)
    return entries


def _from_list(entries: Sequence[Any], depths: Sequence[int], field: str) -> Schedule:
    if any(isinstance(entry, (list, tuple)) for entry in entries):
        return _from_nested(entries, depths, field)
    if len(entries) == len(depths):
        return [
            [dict(_entry(entry, f"{field}[{i}]")) for _ in range(depth)]
            for i, (entry, depth) in enumerate(zip(entries, depths, strict=True))
        ]
    if len(entries) == sum(depths):
        flat = [dict(_entry(entry, f"{field}[{i}]")) for i, entry in enumerate(entries)]
        return _by_stage(flat, depths)
    raise UserError(
        f"{field} lists {len(entries)} attentions; allowed: {len(depths)} (one a stage) or "
        f"{sum(depths)} (one a block of depths {tuple(depths)})"
    )


def _from_nested(entries: Sequence[Any], depths: Sequence[int], field: str) -> Schedule:
    if len(entries) != len(depths):
        raise UserError(
            f"{field} has {len(entries)} lists for {len(depths)} stages; allowed: one list a stage"
        )
    schedule = []
    for i, (stage, depth) in enumerate(zip(entries, depths, strict=True)):
        if not isinstance(stage, (list, tuple)):
            stage = [stage] * depth
        if len(stage) != depth:
            raise UserError(
                f"{field}[{i}] lists {len(stage)} attentions; allowed: {depth}, one a block"
            )
        schedule.append([dict(_entry(e, f"{field}[{i}][{j}]")) for j, e in enumerate(stage)])
    return schedule


def _entry(entry: Any, field: str) -> dict[str, Any]:
    """One attention config from a name or a dict with ``type``."""
    config = (
        {"type": entry}
        if isinstance(entry, str)
        else dict(entry)
        if isinstance(entry, dict)
        else {}
    )
    name = config.get("type")
    if not isinstance(name, str):
        raise UserError(f"{field}={entry!r}; allowed: a name or a dict with type=NAME")
    names = ATTENTIONS.names()
    if name not in names:
        hint = did_you_mean(name, names)
        raise UserError(
            f"{field}: there is no attention '{name}'; {hint + ' ' if hint else ''}"
            f"allowed: {', '.join(names)}"
        )
    return config
