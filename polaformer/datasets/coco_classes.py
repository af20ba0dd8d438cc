"""Which categories of a COCO file are trained, and under which label."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from polaformer.coco.format import CocoFile, Id
from polaformer.datasets.layout import name_some
from polaformer.errors import UserError, did_you_mean


def asked_classes(classes: Any, metainfo: Mapping[str, Any] | None) -> tuple[str, ...] | None:
    """The class names that a config gives, as ``classes`` or in ``metainfo``; None for all."""
    within = (metainfo or {}).get("classes")
    if classes is not None and within is not None and list(classes) != list(within):
        raise UserError(
            f"classes={list(classes)} and metainfo=dict(classes={list(within)}) differ; give one"
        )
    given = within if classes is None else classes
    if given is None:
        return None
    if isinstance(given, str) or not isinstance(given, Sequence):
        raise UserError(f"classes must be a list of names, not {given!r}")
    names = tuple(str(name) for name in given)
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise UserError(f"classes names {name_some(twice)} more than once")
    if not names:
        raise UserError("classes is empty; leave it out to take every category of the file")
    return names


def choose_categories(
    coco: CocoFile, asked: tuple[str, ...] | None
) -> tuple[tuple[str, ...], tuple[Id, ...]]:
    """Names and ids of the categories in the order of their labels.

    Without names asked for: all, in the order of their ids, numbers before strings. Raises
    UserError naming every class that the file does not have and every category that is not used.
    """
    ids = {category["name"]: category["id"] for category in coco.categories}
    if not ids:
        raise UserError(f"{coco.path} has no categories, so there is nothing to learn")
    if asked is None:
        asked = tuple(sorted(ids, key=lambda name: (isinstance(ids[name], str), ids[name])))
    unknown = [name for name in asked if name not in ids]
    if unknown:
        raise UserError(_mismatch(coco, asked, unknown))
    return asked, tuple(ids[name] for name in asked)


def unused_categories(coco: CocoFile, classes: tuple[str, ...]) -> list[str]:
    """Names of the file's categories that are not among ``classes``."""
    return [c["name"] for c in coco.categories if c["name"] not in classes]


def _mismatch(coco: CocoFile, asked: tuple[str, ...], unknown: list[str]) -> str:
    unused = unused_categories(coco, asked)
    told = ", ".join(
        f"'{name}'" + (f" ({hint})" if (hint := did_you_mean(name, unused)) else "")
        for name in unknown[:20]
    )
    more = f", … and {len(unknown) - 20} more" if len(unknown) > 20 else ""
    quoted = [f"'{name}'" for name in unused]
    return (
        f"{coco.path} has no category for {len(unknown)} of the {len(asked)} classes: "
        f"{told}{more}; categories of the file that no class uses: {name_some(quoted) or 'none'}. "
        "Names must agree to the letter"
    )
