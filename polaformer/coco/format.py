"""COCO annotation files, read once and brought to one form, whatever wrote them."""

from __future__ import annotations

import math
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from polaformer.coco.ids import Id, Ids, as_id
from polaformer.coco.masks import mask_area, mask_box, normalise
from polaformer.coco.reading import no_garbage_collection, not_there, parsed
from polaformer.errors import UserError

UNKNOWN_IMAGE = "annotation of an unknown image"
UNKNOWN_CATEGORY = "annotation of an unknown category"
NO_OBJECT = "annotation that is no object"
BAD_BOX = "box that is no four finite numbers"
NO_AREA = "box without area"
OUTSIDE = "box outside of the picture"
PARTLY_OUTSIDE = "box partly outside of the picture"
BAD_MASK = "mask that cannot be used"
SAME_ID = "annotation without an id of its own"
MISSING_FIELD = "missing field"
NO_SIZE = "image without width and height"
IMAGE_TWICE = "image listed twice"
SAME_FILE = "file listed under several ids"
CATEGORY_TWICE = "category listed twice"
NAME_TWICE = "category left out, whose name another one has"
LEFT_OUT = (UNKNOWN_IMAGE, UNKNOWN_CATEGORY, NO_OBJECT, BAD_BOX, NO_AREA, OUTSIDE)

_KEPT_FILES, _KEPT_BYTES = 4, 64 * 2**20
_kept: dict[tuple[str, int, int], CocoFile] = {}


@dataclass
class CocoFile:
    """What an annotation file says.

    Ids are whole numbers or strings: 7.0 and "7" become 7, any other string stays what it is (also
    "007"). Further fields of the file's entries stay in place.

    Attributes:
        path: absolute path of the file.
        images: dict(id, file_name, width, height) in the file's order; the sizes are None where
            the file has none.
        categories: dict(id, name) in the file's order; names and ids are distinct.
        annotations: dict(id, image_id, category_id, bbox [x, y, width, height], area, iscrowd 0 or
            1, segmentation). Ids are distinct whole numbers. ``segmentation`` is a list of
            polygons, dict(size, counts) with checked run lengths, or None. Boxes have an area and
            touch the picture, but are not clipped.
        problems: (kind, where, what) of everything odd; the kinds are this module's constants,
            annotations of the kinds in ``LEFT_OUT`` are in no other list but ``unreachable``.
        by_image: the annotations of every image, by its id, in the file's order.
        unreachable: likewise, the annotations whose box has no area or lies outside of the picture:
            nothing to train on, but pycocotools counts them as objects that were not found.
        written_ids: 'images' and 'categories': id -> as the file writes it, where that is not
            equal, as "7" for 7.
    """

    path: Path
    images: list[dict[str, Any]]
    categories: list[dict[str, Any]]
    annotations: list[dict[str, Any]] = field(default_factory=list)
    problems: list[tuple[str, str, str]] = field(default_factory=list)
    by_image: dict[Id, list[dict[str, Any]]] = field(default_factory=dict)
    unreachable: dict[Id, list[dict[str, Any]]] = field(default_factory=dict)
    written_ids: dict[str, dict[Id, str]] = field(default_factory=dict)

    def problem_counts(self) -> dict[str, int]:
        """Number of problems of every kind there is."""
        return dict(Counter(kind for kind, _, _ in self.problems))


def read_coco(path: str | Path) -> CocoFile:
    """The annotation file ``path``; a small one is kept until it changes, so do not modify it.

    Raises UserError if the file does not exist, is no JSON or not in COCO's format, or if an id or
    a category's name means two things.
    """
    path = Path(path).expanduser().absolute()
    if not path.is_file():
        raise UserError(not_there(path))
    status = path.stat()
    key = (str(path), status.st_size, status.st_mtime_ns)
    if key not in _kept:
        with no_garbage_collection():
            content = _Reading(path, parsed(path)).result()
        if status.st_size > _KEPT_BYTES:
            return content
        for old in [k for k in _kept if k[0] == key[0]] + list(_kept)[: 1 - _KEPT_FILES]:
            _kept.pop(old, None)
        _kept[key] = content
    return _kept[key]


class _Reading:
    """One pass over a parsed file, which is changed in place: it may be gigabytes."""

    def __init__(self, path: Path, content: dict[str, Any]) -> None:
        self.path = path
        self.content = content
        self.problems: list[tuple[str, str, str]] = []
        self.missing: Counter[str] = Counter()
        self.unreachable: dict[Id, list[dict[str, Any]]] = {}
        self.written: dict[str, dict[Id, str]] = {"images": {}, "categories": {}}

    def result(self) -> CocoFile:
        images = self._images(self.content["images"])
        categories = self._categories(self.content.get("categories") or [])
        raw = self.content.get("annotations") or []
        if "annotations" not in self.content:
            self._note(MISSING_FIELD, self.path.name, "the file has no annotations")
        sizes = {image["id"]: (image["height"], image["width"]) for image in images}
        known = Ids(sizes), Ids(category["id"] for category in categories)
        found = [ann for i, ann in enumerate(raw) if self._annotation(i, ann, sizes, *known)]
        self._number(found)
        for name, count in self.missing.items():
            told = f"'{name}' is missing or odd in {count} of {len(raw)}"
            self._note(MISSING_FIELD, "annotations", told)
        by_image: dict[Id, list[dict[str, Any]]] = {image["id"]: [] for image in images}
        for ann in found:
            by_image[ann["image_id"]].append(ann)
        tables = (self.problems, by_image, self.unreachable, self.written)
        return CocoFile(self.path, images, categories, found, *tables)

    def _note(self, kind: str, where: str, text: str) -> None:
        self.problems.append((kind, where, text))

    def _images(self, raw: list) -> list[dict[str, Any]]:
        by_id: dict[Id, dict[str, Any]] = {}
        names: dict[str, Id] = {}
        for i, image in enumerate(raw):
            where = f"images[{i}]"
            key = self._entry_id("images", image, where)
            name = self._file_name(image, where)
            image.update(id=key, file_name=name)
            image["width"], image["height"] = _side(image.get("width")), _side(image.get("height"))
            if image["width"] is None or image["height"] is None:
                image["width"] = image["height"] = None
                self._note(NO_SIZE, where, name)
            if (earlier := by_id.setdefault(key, image)) is not image:
                if earlier["file_name"] != name:
                    raise UserError(
                        f"{self.path}: the images '{earlier['file_name']}' and '{name}' have the "
                        f"same id {key!r}, so nobody can tell whose its annotations are"
                    )
                self._note(IMAGE_TWICE, where, f"'{name}' with id {key!r}")
            elif names.setdefault(name, key) != key:
                self._note(SAME_FILE, where, f"'{name}' has ids {names[name]!r} and {key!r}")
        return list(by_id.values())

    def _categories(self, raw: list) -> list[dict[str, Any]]:
        by_id: dict[Id, dict[str, Any]] = {}
        ids: dict[str, dict[Id, str]] = {}
        for i, category in enumerate(raw):
            where = f"categories[{i}]"
            key = self._entry_id("categories", category, where)
            name = category.get("name")
            if name is None or name == "":
                self._note(MISSING_FIELD, where, f"the category with id {key!r} has no name")
            name = str(key) if name is None or name == "" else str(name)
            category.update(id=key, name=name)
            earlier = by_id.setdefault(key, category)
            if earlier["name"] != name:
                raise UserError(
                    f"{self.path}: the categories '{earlier['name']}' and '{name}' have the same "
                    f"id {key!r}"
                )
            if earlier is not category:
                self._note(CATEGORY_TWICE, where, f"'{name}' with id {key!r}")
            ids.setdefault(name, {})[key] = where
        for name, places in ids.items():
            for key in self._unused(name, places, by_id):
                del by_id[key]
        return list(by_id.values())

    def _unused(self, name: str, places: dict[Id, str], known: Iterable[Id]) -> list[Id]:
        """Of several ids under one ``name`` all but the one that annotations have."""
        if len(places) == 1:
            return []
        ids = Ids(known)
        raw = self.content.get("annotations") or []
        found = {ids.match(ann.get("category_id")) for ann in raw if isinstance(ann, dict)}
        used = [key for key in places if key in found] or list(places)[:1]
        if len(used) > 1:
            raise UserError(
                f"{self.path}: two categories are named '{name}' (ids {used[0]!r} and "
                f"{used[1]!r}), and both have annotations; give them different names or one id"
            )
        unused = [key for key in places if key != used[0]]
        for key in unused:
            told = f"'{name}' with id {key!r} has no annotation, so the name stands for {used[0]!r}"
            self._note(NAME_TWICE, places[key], told)
        return unused

    def _entry_id(self, table: str, entry: Any, where: str) -> Id:
        key = as_id(entry.get("id")) if isinstance(entry, dict) else None
        if key is None:
            raise UserError(f"{self.path}: {where} has no id (a number or a string)")
        if entry["id"] != key:
            self.written[table].setdefault(key, entry["id"])
        return key

    def _file_name(self, image: dict[str, Any], where: str) -> str:
        for key in ("file_name", "path"):
            if isinstance(image.get(key), str) and image[key].strip():
                return _possible(image[key])
        if isinstance(image.get("coco_url"), str) and urlsplit(image["coco_url"]).path.strip("/"):
            return urlsplit(image["coco_url"]).path.strip("/")
        raise UserError(f"{self.path}: {where} (id {image['id']!r}) has no file_name")

    def _annotation(self, i: int, ann: Any, sizes: dict, images: Ids, categories: Ids) -> bool:
        """Bring one annotation into form; False if it has to be left out."""
        if not isinstance(ann, dict):
            self._note(NO_OBJECT, f"annotations[{i}]", f"is {type(ann).__name__}")
            return False
        image_id = images.match(ann.get("image_id"))
        if image_id is None:
            self._note(UNKNOWN_IMAGE, _where(i, ann), f"image_id {ann.get('image_id')!r}")
            return False
        category_id = categories.match(ann.get("category_id"))
        if category_id is None:
            self._note(UNKNOWN_CATEGORY, _where(i, ann), f"category_id {ann.get('category_id')!r}")
            return False
        ann["image_id"], ann["category_id"] = image_id, category_id
        height, width = sizes[image_id]
        size = None if width is None else (height, width)
        ann["segmentation"], odd = normalise(ann.get("segmentation"), size)
        if odd is not None:
            self._note(BAD_MASK, _where(i, ann), odd)
        if not self._box(i, ann, size):
            return False
        self._numbers(ann)
        return True

    def _box(self, i: int, ann: dict[str, Any], size: tuple[int, int] | None) -> bool:
        raw = ann.get("bbox")
        if not raw and ann["segmentation"] is not None:
            self.missing["bbox"] += 1
            raw = mask_box(ann["segmentation"])
        try:
            x, y, w, h = box = [float(value) for value in raw]  # type: ignore[union-attr]
        except (TypeError, ValueError, OverflowError):
            self._note(BAD_BOX, _where(i, ann), _short(raw))
            return False
        if not math.isfinite(x + y + w + h):
            self._note(BAD_BOX, _where(i, ann), _short(raw))
            return False
        if w <= 0 or h <= 0:
            self._note(NO_AREA, _where(i, ann), f"width {w:g}, height {h:g}")
            return self._out_of_reach(ann, box)
        ann["bbox"] = box
        return size is None or self._inside(i, ann, size)

    def _inside(self, i: int, ann: dict[str, Any], size: tuple[int, int]) -> bool:
        x, y, w, h = ann["bbox"]
        height, width = size
        if x >= -1 and y >= -1 and x + w <= width + 1 and y + h <= height + 1:
            return True
        told = f"{_short(ann['bbox'])} in a picture of {width} x {height}"
        if x >= width or y >= height or x + w <= 0 or y + h <= 0:
            self._note(OUTSIDE, _where(i, ann), told)
            return self._out_of_reach(ann, ann["bbox"])
        self._note(PARTLY_OUTSIDE, _where(i, ann), told)
        return True

    def _out_of_reach(self, ann: dict[str, Any], box: list[float]) -> bool:
        """Keep an annotation aside, with its own area: pycocotools sorts by it even if it is 0."""
        area: Any = ann.get("area")
        sound = _is_number(area)
        ann.update(bbox=box, area=area if sound else max(box[2], 0.0) * max(box[3], 0.0))
        self._crowd(ann)
        self.unreachable.setdefault(ann["image_id"], []).append(ann)
        return False

    def _numbers(self, ann: dict[str, Any]) -> None:
        area: Any = ann.get("area")
        if not _is_number(area) or area <= 0:
            self.missing["area"] += 1
            mask = ann["segmentation"]
            ann["area"] = (mask_area(mask) if mask else 0) or ann["bbox"][2] * ann["bbox"][3]
        self._crowd(ann)

    def _crowd(self, ann: dict[str, Any]) -> None:
        crowd = ann.get("iscrowd")
        if crowd not in (0, 1):
            if crowd is None:
                self.missing["iscrowd"] += 1
            crowd = str(crowd).strip().lower() in ("1", "1.0", "true")
        ann["iscrowd"] = int(crowd)

    def _number(self, found: Sequence[dict[str, Any]]) -> None:
        """Give annotations without an id, or with one that is taken, a new one."""
        taken: set[int] = set()
        without = []
        for ann in found:
            key = as_id(ann.get("id"))
            if type(key) is int and key not in taken:
                ann["id"] = key
                taken.add(key)
            else:
                without.append(ann)
        if without:
            first = max(taken, default=0) + 1
            for key, ann in enumerate(without, start=first):
                ann["id"] = key
            told = f"{len(without)} of {len(found)} are numbered anew from {first} on"
            self._note(SAME_ID, "annotations", told)


def _possible(name: str) -> str:
    """``name`` with a mark in place of what no file's name can hold; the file is then missing."""
    name = name.replace("\0", "\N{REPLACEMENT CHARACTER}")
    try:
        name.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return name.encode("utf-8", "replace").decode("utf-8")
    return name


def _is_number(value: Any) -> bool:
    """Whether ``value`` is a finite number; a whole one may have hundreds of digits."""
    return type(value) in (int, float) and abs(value) <= sys.float_info.max


def _side(value: Any) -> int | None:
    """A width or height in whole pixels, or None if it is none."""
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):  # the last for hundreds of digits
        return None
    return int(number) if math.isfinite(number) and number >= 1 else None


def _where(i: int, ann: dict[str, Any]) -> str:
    return f"annotations[{i}] (id {ann.get('id')!r})"


def _short(value: Any) -> str:
    if isinstance(value, list) and all(isinstance(v, float) for v in value):
        return "[" + ", ".join(f"{v:g}" for v in value) + "]"
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}…"
