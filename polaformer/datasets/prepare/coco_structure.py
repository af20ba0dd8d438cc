"""Look at an annotation file as it is written, where the reader would refuse or mend it."""

from __future__ import annotations

import json
import tempfile
from collections import Counter
from collections.abc import Hashable, Iterable
from pathlib import Path
from typing import Any

from mmengine.logging import print_log

from polaformer.coco.format import CocoFile, as_id, read_coco
from polaformer.datasets.prepare.findings import Finding, is_rare
from polaformer.errors import UserError

UNNAMED = "<nameless images["  # begins the stand-in for a file name that is missing
_LARGE = 2**26  # bytes; reading such a file takes seconds
_OTHER_KINDS = {
    "segments_info": "panoptic segmentation",
    "caption": "image captions",
    "question": "questions about images",
}


def read_all(path: Path) -> tuple[CocoFile | None, list[Finding], str | None]:
    """The file as training reads it, what is wrong with its entries, and why it cannot be read.

    Where the reader stops at the first contradiction (an id that means two things, an image without
    a name), all of them are found, and the rest of the file is read as if they were mended. Nothing
    on disk is changed.
    """
    if path.stat().st_size > _LARGE:
        print_log(f"reading {path} ({path.stat().st_size / 2**20:,.0f} MiB)", logger="current")
    content = _parsed(path)
    findings = _annotation_ids(content) if content is not None else []
    kind = _other_kind(content)
    if kind is not None:
        return None, [], f"{path} holds {kind}, not boxes of objects"
    try:
        del content  # the reader needs the memory
        return read_coco(path), findings, None
    except UserError as error:
        content = _parsed(path)
        if content is None:
            return None, [], str(error)
        contradictions = _mend(content)
        if not contradictions:
            return None, findings, str(error)
        return _read_mended(content, contradictions + findings)


def _read_mended(
    content: dict[str, Any], findings: list[Finding]
) -> tuple[CocoFile | None, list[Finding], str | None]:
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "annotations.json"
        copy.write_text(json.dumps(content), encoding="utf-8")
        try:
            return read_coco(copy), findings, None
        except UserError as error:
            return None, findings, str(error).replace(str(copy), "the rest of the file")


def _parsed(path: Path) -> dict[str, Any] | None:
    """The file's content if it is an object with a list of images, otherwise None."""
    try:
        content = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return None
    if not isinstance(content, dict) or not isinstance(content.get("images"), list):
        return None
    lists = (content.get(key) or [] for key in ("annotations", "categories"))
    return content if all(isinstance(value, list) for value in lists) else None


def _other_kind(content: dict[str, Any] | None) -> str | None:
    """What a file of annotations that are no objects is about."""
    annotations = (content or {}).get("annotations") or [None]
    first = annotations[0] if isinstance(annotations[0], dict) else {}
    found = [text for key, text in _OTHER_KINDS.items() if key in first and "bbox" not in first]
    return found[0] if found else None


def _annotation_ids(content: dict[str, Any]) -> list[Finding]:
    annotations = [one for one in content.get("annotations") or [] if isinstance(one, dict)]
    keys = Counter(as_id(one.get("id")) for one in annotations)
    missing = keys.pop(None, 0)
    twice = {key: count for key, count in keys.items() if count > 1}
    findings = []
    if missing:
        label = "annotations without an id (they are numbered anew)"
        findings.append(Finding(label, missing, problem=False))
    if twice:
        findings.append(
            Finding(
                "annotation ids used more than once (other programs lose objects by that)",
                len(twice),
                [f"{key!r}, {count} times" for key, count in twice.items()],
                not is_rare(len(twice), len(annotations)),
            )
        )
    return findings


def _mend(content: dict[str, Any]) -> list[Finding]:
    """Take contradictions out of ``content``, in place, and tell of all of them."""
    images, lost = _objects(content["images"])
    content["images"] = images
    findings = _found("entries of images that are no objects", lost)
    unnamed = []
    for i, image in enumerate(images):
        if _file_name(image) is None:
            unnamed.append(f"images[{i}] (id {image.get('id')!r})")
            image["file_name"] = f"{UNNAMED}{i}]>"
    findings += _found("images without a file_name", unnamed)
    findings += _unique_ids(images, "images", _file_name)
    categories, lost = _objects(content.get("categories") or [])
    content["categories"] = categories
    findings += _found("entries of categories that are no objects", lost)
    findings += _unique_ids(categories, "categories", _category_name)
    return findings + _unique_names(categories)


def _objects(entries: list) -> tuple[list[dict], list[str]]:
    lost = [f"number {i} is {one!r:.60}" for i, one in enumerate(entries) if type(one) is not dict]
    return [one for one in entries if type(one) is dict], lost


def _unique_ids(entries: list[dict], what: str, name_of: Any) -> list[Finding]:
    """Give entries a new id whose own is none, or stands for another one before."""
    names: dict[Hashable, str | None] = {}
    without, twice = [], []
    for i, entry in enumerate(entries):
        key = as_id(entry.get("id"))
        if key is None:
            without.append(f"{what}[{i}] ({name_of(entry)!r})")
        elif names.setdefault(key, name_of(entry)) != name_of(entry):
            twice.append(f"{key!r} is '{names[key]}' and '{name_of(entry)}'")
        else:
            continue
        entry["id"] = f"<{what}[{i}]>"
    return _found(f"{what} without an id", without) + _found(
        f"{what} with the id of another one", twice
    )


def _unique_names(categories: list[dict]) -> list[Finding]:
    ids: dict[str | None, Hashable] = {}
    twice = []
    for category in categories:
        name, key = _category_name(category), as_id(category.get("id"))
        if ids.setdefault(name, key) != key:
            twice.append(f"'{name}' has the ids {ids[name]!r} and {key!r}")
            category["name"] = f"{name} ({key})"
    return _found("categories with the name of another one", twice)


def _file_name(image: dict) -> str | None:
    values = (image.get(key) for key in ("file_name", "path", "coco_url"))
    return next((value for value in values if isinstance(value, str) and value.strip()), None)


def _category_name(category: dict) -> str | None:
    name = category.get("name")
    return str(category.get("id")) if name is None or name == "" else str(name)


def _found(label: str, places: Iterable[str]) -> list[Finding]:
    examples = list(places)
    return [Finding(label, len(examples), examples)] if examples else []
