"""What a person must know about the data before training on them."""

from __future__ import annotations

from collections.abc import Iterable

from polaformer.coco.format import (
    BAD_MASK,
    CATEGORY_TWICE,
    IMAGE_TWICE,
    LEFT_OUT,
    NAME_TWICE,
    PARTLY_OUTSIDE,
    SAME_FILE,
    CocoFile,
)
from polaformer.datasets.coco_items import NO_MASK, TINY, UNUSED, Instances
from polaformer.datasets.layout import name_some

_EXAMPLES = 3
_TOLD = (*LEFT_OUT, PARTLY_OUTSIDE, IMAGE_TWICE, SAME_FILE, CATEGORY_TWICE, NAME_TWICE)


def oddities(coco: CocoFile, made: Instances) -> list[str]:
    """'kind: count (examples)' of everything odd in a file that changes what is trained."""
    kinds = (*_TOLD, *([BAD_MASK] if made.masks != "none" else []))
    counts = coco.problem_counts()
    lines = [
        f"{kind}: {counts[kind]} ({_examples(coco, kind)})" for kind in kinds if counts.get(kind)
    ]
    if counts.get(PARTLY_OUTSIDE, 0) > len(coco.annotations) / 10:
        lines.append("COCO's boxes are [x, y, width, height]; are these [x1, y1, x2, y2]?")
    lines += [f"{kind}: {count}" for kind, count in made.odd.items() if count]
    if made.unused:
        names = {category["id"]: category["name"] for category in coco.categories}
        parts = [f"{names[key]}: {count}" for key, count in made.unused.most_common()]
        lines.append(f"{UNUSED}: {made.unused.total()} ({name_some(parts)})")
    return lines


def why_no_object(coco: CocoFile, made: Instances) -> str:
    """Why not a single object is left to train on."""
    if not coco.annotations and not coco.problems:
        return "the file has no annotations"
    if made.odd[TINY] and made.odd[TINY] == made.odd.total():
        return (
            "every box is smaller than a pixel; COCO's boxes are in pixels, not in shares of the "
            "picture"
        )
    if made.odd[NO_MASK] and made.odd[NO_MASK] == made.odd.total():
        return (
            "no object has a usable mask, but the pipeline loads masks (with_mask=True); take a "
            "detector without masks"
        )
    return "; ".join(oddities(coco, made)) or "all are regions to ignore"


def _examples(coco: CocoFile, kind: str) -> str:
    found: Iterable[str] = (f"{where}: {text}" for k, where, text in coco.problems if k == kind)
    return name_some(list(found), _EXAMPLES)
