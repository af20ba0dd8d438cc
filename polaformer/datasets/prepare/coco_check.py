"""Look at data in COCO's format as training would find it, without changing anything."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from polaformer.coco.format import CocoFile
from polaformer.datasets.coco_classes import choose_categories
from polaformer.datasets.coco_items import Instances
from polaformer.datasets.coco_report import why_no_object
from polaformer.datasets.layout import compare_classes
from polaformer.datasets.prepare.check import FILE_CHECKS, Report
from polaformer.datasets.prepare.coco_files import Files, look_at_files, shared_files
from polaformer.datasets.prepare.coco_layout import (
    annotation_files,
    guess_image_folder,
    image_folders,
    title_of,
)
from polaformer.datasets.prepare.coco_objects import (
    TOLD_ELSEWHERE,
    label_of,
    of_categories,
    of_objects,
    of_reader,
)
from polaformer.datasets.prepare.coco_structure import UNNAMED, read_all
from polaformer.datasets.prepare.findings import Finding, table
from polaformer.datasets.sources import printable
from polaformer.errors import UserError

_CLASSES_LISTED = 100
_MASK_KINDS = ("polygons", "packed run lengths (RLE)", "plain run lengths", "no mask")


@dataclass
class Split:
    """One annotation file with its images."""

    title: str
    coco: CocoFile
    files: Files
    counts: dict[str, int]


def check_coco(
    root: str | Path = "data/coco",
    ann: Sequence[str] = (),
    images: Sequence[str] = (),
    files: str = "header",
) -> Report:
    """Check COCO below ``root``, or the annotation files ``ann`` with the folders ``images``.

    Without ``ann`` the files are looked for (see ``annotation_files``), without ``images`` the
    folders. ``files`` is how closely each image file is looked at: 'decode', 'header' or 'none'.
    What is odd in no more than one of a thousand objects and left out in training is a note, not a
    problem: the published COCO files have such objects, too.
    """
    if files not in FILE_CHECKS:
        raise UserError(f"files='{files}' is not known (allowed: {', '.join(FILE_CHECKS)})")
    base = Path(root).expanduser()
    paths = annotation_files(base, ann)
    report = Report()
    splits = []
    titles = [title_of(path) for path in paths]
    if len(set(titles)) < len(titles):
        titles = [f"{number} {title}" for number, title in enumerate(titles, start=1)]
    folders = image_folders(base, paths, images)
    for title, path, folder in zip(titles, paths, folders, strict=True):
        split = _check_one(title, base, path, folder, files, report)
        if split is not None:
            splits.append(split)
    if len(paths) == 1 and not ann and "train" in title_of(paths[0]) and not base.is_file():
        report.notes.append(f"{base} has a train split but no val")
    _compare(splits, files, report)
    return report


def _check_one(
    title: str, root: Path, path: Path, folder: Path | None, how: str, report: Report
) -> Split | None:
    coco, findings, refused = read_all(path)
    if coco is None:
        report.problems.append(f"{title}: {refused}")
        _tell(report, title, findings)
        return None
    named = [image for image in coco.images if not image["file_name"].startswith(UNNAMED)]
    names = [image["file_name"] for image in named]
    if folder is None:
        folder = guess_image_folder(root, path, names)
    sizes = [(image["width"], image["height"]) if image["width"] else None for image in named]
    looked = look_at_files(folder, names, sizes, how)
    report.lines.append(f"{title}: {path}, images in {printable(str(folder))}")
    if refused is not None:
        report.problems.append(f"{title}: {refused}")
    if not coco.images:
        report.problems.append(f"{title}: {path} lists no images")
    if not coco.categories:
        report.problems.append(f"{title}: {path} has no categories")
    if why := _untrainable(coco):
        report.problems.append(f"{title}: {path} has no objects that can be used: {why}")
    findings += _of_images(coco, looked) + of_reader(coco) + of_objects(coco)
    _tell(report, title, findings + of_categories(coco))
    return Split(title, coco, looked, _counts(coco, looked, how))


def _untrainable(coco: CocoFile) -> str | None:
    """Why training finds not a single object, or None if it finds one."""
    made = Instances({category["id"]: 0 for category in coco.categories}, "none")
    for image in coco.images:
        size = (image["width"], image["height"]) if image["width"] else None
        if any(not one["ignore_flag"] for one in made.of(coco.by_image[image["id"]], size)):
            return None
    return why_no_object(coco, made)


def _tell(report: Report, title: str, findings: Iterable[Finding]) -> None:
    for finding in findings:
        if finding.count:
            found = report.problems if finding.problem else report.notes
            found.append(f"{title}: {finding}")


def _counts(coco: CocoFile, looked: Files, how: str) -> dict[str, int]:
    """The lines of the table for one split."""
    counts = {
        "images listed": len(coco.images),
        "  on disk": len(looked.names),
        "  missing": len(looked.missing),
        "  without objects": sum(not found for found in coco.by_image.values()),
        "images not listed": len(looked.not_listed),
    }
    if how != "none":
        seen = "decoded" if how == "decode" else "headers and ends read"
        counts[f"images broken ({seen})"] = len(looked.broken)
        counts["images of another size than recorded"] = len(looked.other_size)
        counts["images recorded as stored, turned by EXIF"] = len(looked.as_stored)
    counts["categories"] = len(coco.categories)
    counts["objects that can be used"] = len(coco.annotations)
    counts["  crowd regions"] = sum(ann["iscrowd"] for ann in coco.annotations)
    masks = Counter(_mask_kind(ann["segmentation"]) for ann in coco.annotations)
    counts |= {f"  with {kind}": masks[kind] for kind in _MASK_KINDS}
    for kind, count in coco.problem_counts().items():
        if kind not in TOLD_ELSEWHERE:
            counts[label_of(kind)] = count
    return counts


def _mask_kind(segmentation: list | dict | None) -> str:
    if segmentation is None:
        return _MASK_KINDS[3]
    if isinstance(segmentation, list):
        return _MASK_KINDS[0]
    return _MASK_KINDS[2 if isinstance(segmentation["counts"], list) else 1]


def _of_images(coco: CocoFile, looked: Files) -> list[Finding]:
    folder = looked.folder
    hint = "" if looked.names else " (--ann FILE --images FOLDER names another folder)"
    return [
        Finding(f"images missing in {folder}{hint}", len(looked.missing), looked.missing),
        Finding("broken image files", len(looked.broken), looked.broken),
        Finding("images of another size than recorded", len(looked.other_size), looked.other_size),
        Finding(
            "images recorded as stored although EXIF turns them (they are read as recorded)",
            len(looked.as_stored),
            looked.as_stored,
            problem=False,
        ),
        Finding(
            f"images in {folder} that are not listed",
            len(looked.not_listed),
            looked.not_listed,
            problem=False,
        ),
    ]


def _compare(splits: list[Split], how: str, report: Report) -> None:
    if not splits:
        return
    report.lines += table("", {split.title: split.counts for split in splits})
    report.lines += _class_table(splits)
    first = splits[0]
    for other in splits[1:]:
        here, there = _classes(first), _classes(other)
        if here and there:
            known_as = "" if first.title == "train" else f" (train stands for {first.title})"
            problems = compare_classes(here, there, other.title)
            report.problems += [text + known_as for text in problems]
        if how != "none":
            shared = shared_files(first.files, other.files)
            found = Finding(f"images also in {first.title}", len(shared), shared)
            _tell(report, other.title, [found])


def _classes(split: Split) -> tuple[str, ...]:
    """The names of the categories in the order of their labels."""
    return choose_categories(split.coco, None)[0] if split.coco.categories else ()


def _class_table(splits: list[Split]) -> list[str]:
    """Objects of every class, crowd regions aside, in the order of the labels."""
    columns = {}
    for split in splits:
        names = {category["id"]: category["name"] for category in split.coco.categories}
        anns = (ann for ann in split.coco.annotations if not ann["iscrowd"])
        counts = Counter(names[ann["category_id"]] for ann in anns)
        columns[split.title] = {name: counts[name] for name in _classes(split)}
    lines = table("objects per class", columns)
    more = len(lines) - 1 - _CLASSES_LISTED
    return lines if more <= 0 else [*lines[: 1 + _CLASSES_LISTED], f"… and {more} more classes"]
