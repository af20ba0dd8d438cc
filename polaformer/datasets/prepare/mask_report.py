"""What the checks of label images share: from what was found in each split to a report."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from polaformer.datasets.label_maps import LabelCoding
from polaformer.datasets.prepare.check import FILE_CHECKS, Report
from polaformer.datasets.prepare.class_pixels import ClassPixels
from polaformer.datasets.prepare.coco_files import shared_files
from polaformer.datasets.prepare.findings import Finding, table
from polaformer.datasets.prepare.mask_look import Looked, Where, counts, findings, lonely, look
from polaformer.datasets.sources import printable
from polaformer.errors import UserError


@dataclass
class MaskReport(Report):
    """A report with the pixels of every class, if label images were counted."""

    classes: ClassPixels | None = None
    title: str = ""


def checked_files(files: str) -> None:
    """Raise UserError if ``files`` is no way of looking at files."""
    if files not in FILE_CHECKS:
        raise UserError(f"files='{files}' is not known (allowed: {', '.join(FILE_CHECKS)})")


def look_at_splits(
    splits: Sequence[Where], coding: LabelCoding | None, files: str, report: Report
) -> list[Looked]:
    """Look at every split; one without a single pair is a problem, and left out."""
    looked = []
    for where in splits:
        images, masks = printable(where.images), printable(where.masks)
        report.lines.append(f"{where.title}: images in {images}, label images in {masks}")
        try:
            looked.append(look(where, coding, files))
        except UserError as error:
            report.problems.append(f"{where.title}: {error}")
    return looked


def tell(report: Report, title: str, found: Iterable[Finding]) -> None:
    """Add what was found to the problems or the notes of ``report``."""
    for finding in found:
        if finding.count:
            told = report.problems if finding.problem else report.notes
            told.append(f"{title}: {finding}")


def tell_splits(
    report: MaskReport, looked: Sequence[Looked], files: str, *, shared_is_problem: bool
) -> None:
    """The table of counts, and what is wrong with the files of each split."""
    if not looked:
        return
    report.lines += table("", {one.where.title: counts(one, files) for one in looked})
    for one in looked:
        title = one.where.title
        report.notes += [f"{title}: {note}" for note in one.pairs.notes]
        tell(report, title, findings(one) if files != "none" else lonely(one))
    if files == "none":
        return
    first = looked[0]
    for other in looked[1:]:
        shared = shared_files(first.images, other.images)
        found = Finding(f"images also in {first.where.title}", len(shared), shared)
        found.problem = shared_is_problem
        tell(report, other.where.title, [found])


def tell_classes(report: MaskReport, classes: ClassPixels) -> None:
    """The table of the classes, and which of them are absent."""
    if not classes.splits or not any(one.pixels.any() for one in classes.splits.values()):
        return
    report.classes = classes
    report.lines += ["", *classes.table()]
    everywhere, partly = classes.absence()
    report.notes += everywhere + partly
