"""What is odd in the objects and categories of an annotation file."""

from __future__ import annotations

from collections.abc import Sequence

from polaformer.coco import format as coco_format
from polaformer.coco.format import CocoFile
from polaformer.datasets.prepare.findings import Finding, is_rare

# Kinds of what the reader finds odd: how the report calls them, and whether they are a problem.
_KINDS: dict[str, tuple[str, bool]] = {
    coco_format.UNKNOWN_IMAGE: ("annotations of an image that is not listed", True),
    coco_format.UNKNOWN_CATEGORY: ("annotations of a category that is not listed", True),
    coco_format.NO_OBJECT: ("annotations that are no objects", True),
    coco_format.BAD_BOX: ("boxes that are no four finite numbers", True),
    coco_format.NO_AREA: ("boxes without area", True),
    coco_format.OUTSIDE: ("boxes outside of the picture", True),
    coco_format.PARTLY_OUTSIDE: ("boxes partly outside of the picture (they are clipped)", False),
    coco_format.BAD_MASK: ("masks that cannot be used", True),
    coco_format.MISSING_FIELD: ("optional fields missing", False),
    coco_format.NO_SIZE: ("images without recorded width and height", False),
    coco_format.IMAGE_TWICE: ("images listed twice", True),
    coco_format.SAME_FILE: ("image files listed under several ids", True),
    coco_format.CATEGORY_TWICE: ("categories listed twice", True),
    coco_format.NAME_TWICE: (
        "categories without an annotation that have the name of another one (left out)",
        False,
    ),
}
# The reader counts annotations without an id of their own; coco_structure names the ids.
TOLD_ELSEWHERE = {coco_format.SAME_ID}
_NOTED_IF_RARE = {coco_format.NO_AREA, coco_format.OUTSIDE, coco_format.BAD_MASK}


def label_of(kind: str) -> str:
    """How the report calls one of the reader's kinds of problems."""
    return _KINDS.get(kind, (kind, True))[0]


def of_reader(coco: CocoFile) -> list[Finding]:
    """What the reader mended or left out."""
    places: dict[str, list[str]] = {}
    for kind, where, text in coco.problems:
        if kind not in TOLD_ELSEWHERE:
            places.setdefault(kind, []).append(f"{where}: {text}")
    objects = len(coco.annotations) + sum(
        count for kind, count in coco.problem_counts().items() if kind in coco_format.LEFT_OUT
    )
    findings = []
    for kind, examples in places.items():
        label, problem = _KINDS.get(kind, (kind, True))
        if kind in _NOTED_IF_RARE:
            problem = not is_rare(len(examples), objects)
        findings.append(Finding(label, len(examples), examples, problem))
    return findings


def of_objects(coco: CocoFile) -> list[Finding]:
    """Repeated objects, masks without area, and boxes in another notation."""
    sizes = {
        image["id"]: (image["width"], image["height"]) if image["width"] else None
        for image in coco.images
    }
    seen: set[tuple] = set()
    twice, empty, tiny, without = [], [], [], 0
    for ann in coco.annotations:
        key = (ann["image_id"], ann["category_id"], ann["iscrowd"], *ann["bbox"])
        where = f"id {ann['id']} in image {ann['image_id']}"
        if key in seen:
            twice.append(where)
        seen.add(key)
        if min(ann["bbox"][2:]) < 1:
            tiny.append(where)
        mask = ann["segmentation"]
        without += mask is None
        if isinstance(mask, list) and not any(map(_has_area, mask)):
            empty.append(where)
    total = len(coco.annotations)
    return [
        Finding(
            "objects given twice (same box and category)",
            len(twice),
            twice,
            not is_rare(len(twice), total),
        ),
        Finding("masks without area", len(empty), empty, not is_rare(len(empty), total)),
        Finding("boxes under a pixel wide or high (they are left out)", len(tiny), tiny, False),
        Finding(
            "objects without a mask while others have one",
            without % total if total else 0,
            (),
            False,
        ),
        Finding(*_odd_boxes(coco, sizes)),
    ]


def _has_area(polygon: Sequence[float]) -> bool:
    """Whether the shoelace formula gives more than rounding; for a million short lists."""
    xs, ys = polygon[0::2], polygon[1::2]
    twice = xs[-1] * ys[0] - xs[0] * ys[-1]
    for x, y, next_x, next_y in zip(xs, ys, xs[1:], ys[1:], strict=False):
        twice += x * next_y - next_x * y
    return abs(twice) > 1e-6


def _odd_boxes(coco: CocoFile, sizes: dict) -> tuple[str, int]:
    """Whether all boxes look like corners, or like fractions of the picture."""
    boxes = [(ann["bbox"], sizes[ann["image_id"]]) for ann in coco.annotations]
    if boxes and all(max(box) <= 1 for box, _ in boxes):
        return (
            "boxes all within 0 to 1, so they seem to be fractions (COCO counts pixels)",
            len(boxes),
        )
    over = sum(size is not None and _ends_outside(box, size) for box, size in boxes)
    if over and all(
        box[2] > box[0] and box[3] > box[1] and (size is None or _corner_inside(box, size))
        for box, size in boxes
    ):
        return (
            "boxes that reach out of the picture while all would fit as corners (COCO writes "
            "[x, y, width, height], not [x1, y1, x2, y2])",
            over,
        )
    return "", 0


def _ends_outside(box: Sequence[float], size: tuple[int, int]) -> bool:
    return box[0] + box[2] > size[0] + 1 or box[1] + box[3] > size[1] + 1


def _corner_inside(box: Sequence[float], size: tuple[int, int]) -> bool:
    return box[2] <= size[0] + 1 and box[3] <= size[1] + 1


def of_categories(coco: CocoFile) -> list[Finding]:
    """Names that are hardly different, and categories without an object."""
    used = {ann["category_id"] for ann in coco.annotations}
    unused = [c["name"] for c in coco.categories if c["id"] not in used]
    plain: dict[str, str] = {}
    alike = []
    for category in coco.categories:
        name = category["name"]
        other = plain.setdefault("".join(name.split()).casefold(), name)
        if other != name:
            alike.append(f"'{other}' and '{name}'")
    spaced = [f"'{c['name']}'" for c in coco.categories if c["name"] != c["name"].strip()]
    return [
        Finding("pairs of categories that differ in case or blanks only", len(alike), alike),
        Finding(
            "category names that begin or end with a blank", len(spaced), spaced, problem=False
        ),
        Finding("categories without an object", len(unused), unused, problem=False),
    ]
