"""What measured values are called and how they are written, whatever the task measures."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

UNKNOWN = "n/a"
_PERCENT = re.compile(r"top\d+|mean_class|accuracy|[am]?Acc|m?IoU|m?Dice|m?Fscore")
_AP = re.compile(r"(?P<kind>[a-z]+)_mAP(?:_(?P<part>50|75|s|m|l))?")
_AR = re.compile(r"(?P<kind>bbox|segm)_AR_(?P<limit>\d+)")
_AP_KINDS = {"bbox": "box AP", "segm": "mask AP"}
_AP_PARTS = {
    "50": "at IoU 0.50",
    "75": "at IoU 0.75",
    "s": "of small objects",
    "m": "of medium objects",
    "l": "of large objects",
}
_NO_MEASURE = frozenset({"epoch", "iter", "step", "lr", "base_lr", "time", "data_time", "memory"})
_COUNTS = ("images", "objects", "truth", "predicted")
_LONG = {
    "mAcc": "mAcc, mean accuracy per class (%)",
    "aAcc": "aAcc, accuracy over all pixels (%)",
    "mDice": "mDice, mean Dice per class (%)",
}
_SHORT = {
    "mean_class": "mean accuracy per class",
    "Acc": "accuracy",
    "truth": "true pixels",
    "predicted": "predicted pixels",
}


def in_percent(key: str) -> bool:
    """Whether values of ``key`` run from 0 to 100; AP and losses are plain numbers."""
    return _PERCENT.fullmatch(plain_key(key)) is not None


def of_whole_images(key: str) -> bool:
    """Whether ``key`` is an accuracy of a classifier of whole images."""
    return re.fullmatch(r"top\d+|mean_class|accuracy", plain_key(key)) is not None


def of_pixels(key: str) -> bool:
    """Whether ``key`` measures the classes of pixels."""
    return plain_key(key) in ("mIoU", "mAcc", "aAcc", "mDice", "mFscore")


def plain_key(key: str) -> str:
    """``key`` without prefixes such as ``val/``."""
    return key.rsplit("/", 1)[-1]


def is_loss(key: str) -> bool:
    """Whether ``key`` names a loss or a part of one, which is better when smaller."""
    return "loss" in plain_key(key)


def short_name_of(key: str) -> str:
    """The name of a measure in a sentence: 'top-1', 'box AP at IoU 0.50'; others as they are."""
    key = plain_key(key)
    if re.fullmatch(r"top\d+", key):
        return f"top-{key[3:]}"
    ap = _AP.fullmatch(key)
    if ap and ap["kind"] in _AP_KINDS:
        part = _AP_PARTS.get(ap["part"])
        return _AP_KINDS[ap["kind"]] + (f" {part}" if part else "")
    return _SHORT.get(key, key)


def mean_over(key: str) -> str | None:
    """What a measure is the mean over, where its name leaves that out: of an AP, thresholds."""
    ap = _AP.fullmatch(plain_key(key))
    return "IoU 0.50 to 0.95" if ap and ap["part"] is None else None


def long_name(key: str) -> str:
    """The name of a measure at the head of a row, with its unit."""
    plain = plain_key(key)
    if re.fullmatch(r"top\d+", plain):
        return f"top-{plain[3:]} accuracy (%)"
    if plain == "mean_class":
        return "mean of the accuracies per class (%)"
    ap = _AP.fullmatch(plain)
    if ap and ap["kind"] in _AP_KINDS and (mean := mean_over(plain)):
        return f"{_AP_KINDS[ap['kind']]} (mean over {mean})"
    if plain in _LONG:
        return _LONG[plain]
    ar = _AR.fullmatch(plain)
    if ar:
        return f"{_AP_KINDS[ar['kind']].split()[0]} recall, at most {ar['limit']} per image"
    return f"{short_name_of(plain)} (%)" if in_percent(plain) else short_name_of(plain)


def number_text(key: str, value: Any, unknown: str = UNKNOWN) -> str:
    """``value`` as tables show it; ``unknown`` for None and for what is not finite."""
    if value is None or (isinstance(value, float) and not math.isfinite(value)):
        return unknown
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return str(value)
    if isinstance(value, int):
        return str(value)
    return f"{value:.2f}" if in_percent(key) else f"{value:.4f}"


def main_measure(values: Mapping[str, Any]) -> str | None:
    """The key that a run is judged by: its first number that is no loss and no bookkeeping."""
    return next((key for key in values if is_measure(key, values[key])), None)


def is_measure(key: str, value: Any) -> bool:
    """Whether ``key`` is something that a validation measures, other than a loss."""
    number = value is None or (isinstance(value, (int, float)) and not isinstance(value, bool))
    return number and not is_loss(key) and plain_key(key) not in _NO_MEASURE


def measures_of(records: Iterable[Mapping[str, Any]]) -> list[str]:
    """The keys of everything that validation ``records`` measure, losses aside, in their order."""
    return list(
        dict.fromkeys(
            key for record in records for key, value in record.items() if is_measure(key, value)
        )
    )


def families(keys: Iterable[str]) -> dict[str, list[str]]:
    """``keys`` that extend an earlier one by ``_…``, behind it: bbox_mAP -> [bbox_mAP_50, …]."""
    found: dict[str, list[str]] = {}
    for key in keys:
        base = next((name for name in found if key.startswith(f"{name}_")), None)
        if base is None:
            found[key] = []
        else:
            found[base].append(key)
    return found


def line_of(values: Mapping[str, float]) -> str:
    """All ``values`` on one line, those of a family in brackets behind its first."""
    parts = []
    for base, rest in families(values).items():
        text = f"{base}: {values[base]:.4f}"
        if rest:
            inner = ", ".join(f"{key[len(base) + 1 :]} {values[key]:.4f}" for key in rest)
            text += f" ({inner})"
        parts.append(text)
    return "  ".join(parts)


def with_unit(key: str, value: Any) -> str:
    """A value in a sentence: '97.22 % top-1', '0.4123 box AP'."""
    text = number_text(key, value)
    unit = " %" if in_percent(key) and text != UNKNOWN else ""
    return f"{text}{unit} {short_name_of(key)}"


@dataclass(frozen=True)
class ClassTable:
    """Values per class: ``rows`` hold a name and one value, or None, for each of ``columns``."""

    columns: tuple[str, ...]
    rows: list[tuple[str, tuple[Any, ...]]]

    @property
    def main(self) -> int | None:
        """The place of the column that the classes are compared by: the first measure."""
        return next((i for i, key in enumerate(self.columns) if key not in _COUNTS), None)

    def worst_first(self) -> list[tuple[str, tuple[Any, ...]]]:
        """The rows by their main value; classes without one at the end."""
        place = self.main
        if place is None:
            return self.rows
        return sorted(self.rows, key=lambda row: _order(row[1][place]))


def _order(value: Any) -> tuple[bool, float]:
    known = isinstance(value, (int, float)) and math.isfinite(value)
    return (not known, float(value) if known else 0.0)


def class_table(content: Mapping[str, Any]) -> ClassTable:
    """The values per class in what ``metrics.json`` holds, of any metric.

    ``per_class`` maps a name to its accuracy in percent (``support`` then counts the images), or to
    a dict of columns. Empty without ``per_class``.
    """
    given = content.get("per_class")
    if not isinstance(given, Mapping) or not given:
        return ClassTable((), [])
    if any(isinstance(value, Mapping) for value in given.values()):
        entries = {
            str(name): value if isinstance(value, Mapping) else {} for name, value in given.items()
        }
        keys = list(dict.fromkeys(str(key) for value in entries.values() for key in value))
        return ClassTable(tuple(keys), [(n, _values(v, keys)) for n, v in entries.items()])
    support = content.get("support")
    counts = support if isinstance(support, Mapping) else {}
    rows = [(str(name), (value, counts.get(name, 0))) for name, value in given.items()]
    return ClassTable(("top1", "images"), rows)


def _values(entry: Mapping[str, Any], keys: Sequence[str]) -> tuple[Any, ...]:
    return tuple(entry.get(key) for key in keys)
