"""Which class folders a data set has, and what is wrong with its layout in words that help."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from polaformer.datasets.archives import ARCHIVE_SUFFIXES, open_source
from polaformer.datasets.decode import is_image_name
from polaformer.datasets.sources import (
    Listing,
    Source,
    is_hidden,
    printable,
)
from polaformer.errors import UserError, did_you_mean

SPLIT_NAMES = {"train", "training", "val", "valid", "validation", "test", "testing"}
_HOW = "expected one folder per class with images in it: <class>/<image>"
_MAX_NAMED = 20


@dataclass
class Layout:
    """Names of images below ``prefix`` in ``source``, the class of each, and what was ignored."""

    source: Source
    prefix: str
    names: list[str]
    labels: list[int]
    classes: tuple[str, ...]
    ignored: list[tuple[str, str]] = field(default_factory=list)

    @property
    def base(self) -> str:
        """The folder (or archive and folder) that holds the class folders."""
        return os.path.join(str(self.source.location), self.prefix).rstrip("/")


def name_some(names: Sequence[str], limit: int = _MAX_NAMED) -> str:
    """'a, b, c' or 'a, b, … and 17 more'."""
    shown = ", ".join(printable(name) for name in names[:limit])
    return shown if len(names) <= limit else f"{shown}, … and {len(names) - limit} more"


def locate_split(root: str | Path, split: str | None) -> tuple[Source, str]:
    """The source and the folder in it that hold the class folders of ``split``.

    For a folder: root/split, root/split.tar or root/split.zip. For an archive: the folder
    ``split`` at its top or in a folder at its top. Without a split: the root itself; in an
    archive also the only folder at its top.
    """
    path = Path(root).expanduser()
    if not path.exists():
        hint = "make it with: python tools/prepare_data.py digits" if path.name == "digits" else ""
        raise UserError(f"there is no {path} (looked in {Path.cwd()}){'; ' if hint else ''}{hint}")
    if not path.is_dir():
        source = open_source(path)
        return source, _prefix_in_archive(source, split)
    if split is None:
        return open_source(path), ""
    if (path / split).is_dir():
        return open_source(path / split), ""
    for suffix in ARCHIVE_SUFFIXES:
        archive = path / f"{split}{suffix}"
        if archive.is_file():
            source = open_source(archive)
            return source, _prefix_in_archive(source, split, required=False)
    raise UserError(_no_split(path, split))


def _no_split(path: Path, split: str) -> str:
    entries = sorted(entry.name for entry in os.scandir(path) if not is_hidden(entry.name))
    deeper = [name for name in entries if (path / name / split).is_dir()]
    problem = f"{path} has no '{split}' folder, {split}.tar or {split}.zip"
    if deeper:
        return (
            f"{problem}; but {path / deeper[0]} has one: that is one level too high, use it as root"
        )
    if path.name.lower() in SPLIT_NAMES:
        return f"{problem}; it looks like a split itself: use {path.parent} as root, or split=None"
    hint = did_you_mean(split, entries)
    there = f"it holds: {name_some(entries, 10)}" if entries else "it is empty"
    return f"{problem}; {there}" + (f"; {hint}" if hint else "")


def _prefix_in_archive(source: Source, split: str | None, required: bool = True) -> str:
    found = source.listing()
    if split is not None:
        hits = [f for f in found.folders if f.rpartition("/")[2] == split and f.count("/") <= 2]
        shallow = sorted(hit for hit in hits if hit.count("/") == min(h.count("/") for h in hits))
        if len(shallow) > 1:
            raise UserError(
                f"{source.location} has several '{split}' folders: {name_some(shallow)}"
            )
        if shallow:
            return shallow[0]
        if required:
            tops = sorted(folder for folder in found.folders if "/" not in folder)
            hint = did_you_mean(split, [folder.rpartition("/")[2] for folder in found.folders])
            raise UserError(
                f"{source.location} has no folder '{split}' inside; at its top: "
                f"{name_some(tops, 10) or 'no folder'}" + (f"; {hint}" if hint else "")
            )
    prefix = ""
    while (only := _only_folder(found)) is not None:
        prefix = f"{prefix}/{only}" if prefix else only
        found = found.below(only)
    return prefix


def _only_folder(found: Listing) -> str | None:
    """The single top folder if it holds folders with files and no files of its own."""
    tops = {folder.partition("/")[0] for folder in found.folders}
    loose = any("/" not in name for name in found.files)
    if len(tops) != 1 or loose or not found.files:
        return None
    return tops.pop() if all(name.count("/") >= 2 for name in found.files) else None


def class_folders(
    root: str | Path,
    split: str | None = None,
    classes: Sequence[str] | None = None,
    allow_empty: bool = False,
) -> Layout:
    """The images of every class folder; raises UserError that explains a wrong layout."""
    source, prefix = locate_split(root, split)
    found = source.listing(prefix)
    layout = Layout(source, prefix, [], [], (), list(found.ignored))
    images = _images(found, layout.ignored)
    folders = sorted({folder for folder in found.folders if "/" not in folder})
    loose = [name for name in images if "/" not in name]
    _check_shape(layout.base, folders, images, loose, split)
    layout.ignored += [(name, "lies outside of the class folders") for name in loose]
    layout.classes = _chosen(folders, classes, layout.base)
    number = {name: i for i, name in enumerate(layout.classes)}
    for name in images:
        label = number.get(name.partition("/")[0]) if "/" in name else None
        if label is not None:
            layout.names.append(name)
            layout.labels.append(label)
    present = set(layout.labels)
    empty = [name for i, name in enumerate(layout.classes) if i not in present]
    if empty and not allow_empty:
        raise UserError(
            f"{layout.base}: {len(empty)} class folder(s) without an image: {name_some(empty)}; "
            "add images, remove the folders, or leave them out with classes=[…]"
        )
    return layout


def _images(found: Listing, ignored: list[tuple[str, str]]) -> list[str]:
    images = []
    for name in found.files:
        if is_image_name(name):
            images.append(name)
        else:
            ignored.append((name, "no image by its name"))
    return images


def _check_shape(
    base: str, folders: list[str], images: list[str], loose: list[str], split: str | None
) -> None:
    in_folders = len(images) - len(loose)
    if not folders and not images:
        raise UserError(f"{base} holds no images; {_HOW}")
    if split is None and folders and {folder.lower() for folder in folders} <= SPLIT_NAMES:
        raise UserError(
            f"{base} holds {name_some(folders)}, which are splits, not classes: give "
            f"split='{folders[0]}'"
        )
    if not in_folders and loose:
        raise UserError(
            f"{base} has {len(loose)} images directly in it ({name_some(loose, 3)}) and none in "
            f"class folders; {_HOW}. If this folder is one class, use the folder above it; if "
            "the classes stand in a list, give ann_file with lines '<image> <class>'"
        )
    if not images:
        raise UserError(
            f"{base} has {len(folders)} folder(s) ({name_some(folders, 10)}) without a single "
            f"image; {_HOW}"
        )
    if len(folders) == 1 and not loose and all(name.count("/") >= 2 for name in images):
        inner = sorted({name.split("/")[1] for name in images})
        raise UserError(
            f"{base} has the single folder '{folders[0]}', and the images lie in folders inside "
            f"it ({name_some(inner, 5)}): that is one level too high, use "
            f"{os.path.join(base, folders[0])}"
        )


def _chosen(folders: list[str], classes: Sequence[str] | None, base: str) -> tuple[str, ...]:
    if classes is None:
        return tuple(folders)
    wanted = check_class_names(classes)
    unknown = [name for name in wanted if name not in folders]
    if unknown:
        unused = [name for name in folders if name not in wanted]
        told = ", ".join(
            f"'{name}'" + (f" ({hint})" if (hint := did_you_mean(name, unused or folders)) else "")
            for name in unknown[:_MAX_NAMED]
        )
        raise UserError(
            f"{base} has no folder for {len(unknown)} of the {len(wanted)} classes asked for: "
            f"{told}; folders not asked for: {name_some(unused) or 'none'}"
        )
    return wanted


def check_class_names(classes: Sequence[str]) -> tuple[str, ...]:
    """``classes`` as a tuple of distinct strings; raises UserError otherwise."""
    if isinstance(classes, str):
        raise UserError(f"classes must be a list of names, not the string '{classes}'")
    names = tuple(str(name) for name in classes)
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise UserError(f"classes names {name_some(twice)} more than once")
    if blank := [i for i, name in enumerate(names, start=1) if not name.strip()]:
        raise UserError(f"classes: name {blank[0]} of {len(names)} is blank")
    if not names:
        raise UserError("classes is empty; leave it out to take every folder")
    return names


def compare_classes(train: Any, other: Any, name: str = "val") -> list[str]:
    """Problems between the classes of two data sets, or of two lists of class names; empty if none.

    The same names in another order are a problem too, because a class is its position in the list.
    """
    first = tuple(getattr(train, "classes", train))
    second = tuple(getattr(other, "classes", other))
    problems = []
    unknown = [label for label in second if label not in first]
    missing = [label for label in first if label not in second]
    if unknown:
        hints = [hint for label in unknown[:5] if (hint := did_you_mean(label, missing or first))]
        text = f"{name} has {len(unknown)} class(es) that train has not: {name_some(unknown)}"
        problems.append(text + (f" ({' '.join(hints)})" if hints else ""))
    if missing:
        problems.append(f"{name} lacks {len(missing)} class(es) of train: {name_some(missing)}")
    if not problems and first != second:
        at = next(i for i, pair in enumerate(zip(first, second, strict=True)) if pair[0] != pair[1])
        problems.append(
            f"{name} has train's classes in another order (position {at}: '{first[at]}' in "
            f"train, '{second[at]}' in {name}); give both the same classes=[…]"
        )
    return problems
