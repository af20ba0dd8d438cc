"""Look at a data set as training would find it, without training and without changing anything."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from polaformer.datasets.archives import open_source
from polaformer.datasets.image_folder import ImageFolder
from polaformer.datasets.imagenet import ImageNet
from polaformer.datasets.layout import compare_classes, name_some
from polaformer.datasets.sources import printable
from polaformer.errors import UserError

FILE_CHECKS = ("decode", "header", "none")
_IMAGENET_COUNTS = {"train": 1_281_167, "val": 50_000}
_CLASSES_LISTED = 40


@dataclass
class Report:
    """Lines to print, and the problems among them; notes are worth knowing, but no problems."""

    lines: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def add_problem(self, text: str) -> None:
        self.problems.append(text)

    def __str__(self) -> str:
        notes = [f"note: {text}" for text in self.notes]
        found = [f"problem: {text}" for text in self.problems]
        verdict = f"{len(found)} problem(s)" if found else "no problems found"
        return "\n".join([*self.lines, *notes, *found, verdict])


def check_folder(root: str | Path, files: str = "decode") -> Report:
    """Check train and val of ``root`` if it has them (also as archives), otherwise its classes."""
    path = Path(root).expanduser()
    if not path.exists():
        raise UserError(f"there is no {path} (looked in {Path.cwd()})")
    report = Report()
    splits = _splits(path)
    found = {}
    choices: list[str | None] = [*splits] or [None]
    for split in choices:

        def make(split: str | None = split) -> ImageFolder:
            return ImageFolder(path, split, check="none", allow_empty=True)

        dataset = _check_one(make, split or path.name, files, report)
        if dataset is not None:
            found[split] = dataset
    if splits and "train" in splits and not {"val", "valid", "validation", "test"} & set(splits):
        report.add_problem(f"{path} has a train split but no val")
    first = found.get("train")
    for split, dataset in found.items():
        if first is not None and dataset is not first:
            report.problems += compare_classes(first, dataset, str(split))
    return report


def check_imagenet(root: str | Path = "data/imagenet", files: str = "header") -> Report:
    """Check train and val of ImageNet-1K: layout, synsets, official counts, files."""
    path = Path(root).expanduser()
    if not path.exists():
        raise UserError(
            f"there is no {path} (looked in {Path.cwd()}); data/README.md says how ImageNet is "
            "laid out"
        )
    report = Report()
    for split, expected in _IMAGENET_COUNTS.items():

        def make(split: str = split) -> ImageFolder:
            return ImageNet(path, split, check="none")

        dataset = _check_one(make, split, files, report)
        if dataset is not None and len(dataset) != expected:
            report.add_problem(f"{split} has {len(dataset):,} images; ImageNet-1K has {expected:,}")
    return report


def _splits(path: Path) -> list[str]:
    if not path.is_dir():
        return _splits_in_archive(path)
    names = ("train", "val", "valid", "validation", "test")
    return [
        name
        for name in names
        if (path / name).is_dir()
        or any((path / f"{name}.{kind}").is_file() for kind in ("tar", "zip"))
    ]


def _splits_in_archive(path: Path) -> list[str]:
    folders = {name.rpartition("/")[2] for name in open_source(path).listing().folders}
    return [name for name in ("train", "val") if name in folders]


def _check_one(
    make: Callable[[], ImageFolder], title: str, files: str, report: Report
) -> ImageFolder | None:
    if files not in FILE_CHECKS:
        raise UserError(f"files='{files}' is not known (allowed: {', '.join(FILE_CHECKS)})")
    try:
        dataset = make()
    except UserError as error:
        report.add_problem(f"{title}: {error}")
        return None
    report.lines += _table(title, dataset)
    empty = [name for name, count in dataset.class_counts().items() if not count]
    if empty:
        report.add_problem(
            f"{title}: {len(empty)} class folder(s) without an image: {name_some(empty)}"
        )
    if files != "none":
        bad = dataset.check(decode=files == "decode")
        report.lines.append(
            f"  {'decoded' if files == 'decode' else 'headers read'}: {len(bad)} bad"
        )
        report.problems += [f"{title}: bad image {text}" for text in bad]
    return dataset


def _table(title: str, dataset: ImageFolder) -> list[str]:
    counts = dataset.class_counts()
    values = list(counts.values())
    lines = [
        f"{title}: {len(dataset):,} images in {len(counts):,} classes at {printable(dataset.base)}",
        f"  images per class: {min(values):,} to {max(values):,}, median "
        f"{statistics.median(values):g}",
    ]
    if len(counts) <= _CLASSES_LISTED:
        width = max(len(printable(name)) for name in counts)
        lines += [f"  {printable(name):<{width}} {count:>8,}" for name, count in counts.items()]
    if dataset.ignored:
        names = name_some([f"{name} ({why})" for name, why in dataset.ignored], 10)
        lines.append(f"  left out, {len(dataset.ignored)}: {names}")
    return lines
