"""Annotation files as JSON: found, parsed, and with the tables of a COCO file."""

from __future__ import annotations

import gc
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from polaformer.errors import UserError, nearest


def not_there(path: Path) -> str:
    """What a person must know where there is no annotation file ``path``."""
    if path.is_dir():
        return f"{path} is a folder, not an annotation file"
    try:
        others = sorted(p.name for p in path.parent.iterdir() if p.suffix.lower() == ".json")
    except OSError:
        return f"there is no annotation file {path}: nor is there a folder {path.parent}"
    names = {Path(name).stem: name for name in others}
    match = nearest(path.stem, names)  # a suffix in common does not make names alike
    hint = f"did you mean '{names[match]}'?" if match else ""
    there = f"in its folder: {', '.join(others[:10])}" if others else "no .json is in its folder"
    return f"there is no annotation file {path}; {hint + ' ' if hint else ''}{there}"


@contextmanager
def no_garbage_collection() -> Iterator[None]:
    """For millions of new objects without cycles: looking for garbage takes half of the time."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def parsed(path: Path) -> dict[str, Any]:
    """The content of a file that has COCO's tables; raises UserError for any other."""
    try:
        raw = path.read_bytes()
        text = raw.decode(json.detect_encoding(raw))
        del raw  # hundreds of megabytes
        content = json.loads(text)
    except json.JSONDecodeError as error:
        cut = error.pos >= len(error.doc.rstrip()) or error.msg.startswith("Unterminated")
        raise UserError(
            f"{path} is no JSON: line {error.lineno}, column {error.colno}: "
            f"{'the file is cut short' if cut else error.msg}"
        ) from error
    except (ValueError, RecursionError) as error:  # no Unicode, numbers of thousands of digits
        raise UserError(f"{path} is no JSON text ({type(error).__name__})") from error
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}") from error
    return _with_tables(path, content)


def _with_tables(path: Path, content: Any) -> dict[str, Any]:
    if isinstance(content, list):
        told = "a list, as results of a detector are"
        raise UserError(f"{path} is {told}; a COCO file has images, annotations and categories")
    if not isinstance(content, dict):
        raise UserError(f"{path} holds {type(content).__name__}, not a COCO file")
    for key in ("images", "categories", "annotations"):
        value = content.get(key)
        if value is None and (key == "annotations" or (key == "categories" and not _any(content))):
            continue
        if not isinstance(value, list):
            there = ", ".join(map(str, list(content)[:10])) or "nothing"
            raise UserError(f"{path} has no list '{key}', so it is no COCO file; it has: {there}")
    return content


def _any(content: dict[str, Any]) -> bool:
    return bool(content.get("annotations"))
