"""Look at ADE20K's scene parsing benchmark as training would find it, without changing anything."""

from __future__ import annotations

from pathlib import Path

from polaformer.datasets.class_sets import IGNORED, class_set
from polaformer.datasets.label_coding import make_coding
from polaformer.datasets.prepare.ade20k_layout import COUNTS, find_splits
from polaformer.datasets.prepare.class_pixels import ClassPixels
from polaformer.datasets.prepare.mask_look import Looked, Where
from polaformer.datasets.prepare.mask_report import (
    MaskReport,
    checked_files,
    look_at_splits,
    tell_classes,
    tell_splits,
)

_USUAL = "PNG, gray, 8 bits"


def check_ade20k(
    root: str | Path = "data/ADEChallengeData2016", files: str = "header"
) -> MaskReport:
    """Check images and annotations of training and validation below ``root``.

    ``files`` is how closely each image is looked at, 'decode', 'header' or 'none'; label images are
    decoded unless it is 'none'. Other counts than the published ones are a note, not a problem.
    Raises UserError where ``root`` is not the benchmark.
    """
    checked_files(files)
    known = class_set("ade20k")
    coding = make_coding(known.classes, known)
    report = MaskReport(title="ADE20K")
    folders, missing = find_splits(Path(root).expanduser())
    report.problems += missing
    splits = [Where(one.title, str(one.images), str(one.masks)) for one in folders]
    looked = look_at_splits(splits, coding, files, report)
    tell_splits(report, looked, files, shared_is_problem=False)
    for one in looked:
        _tell_counts(report, one)
        _tell_encoding(report, one)
    if converted := _converted(looked, len(known.classes)):
        report.problems.append(converted)
    pixels = ClassPixels(known.classes, [str(value) for value in known.values])
    pixels.splits = {one.where.title: one.classes for one in looked if one.classes is not None}
    tell_classes(report, pixels)
    return report


def _tell_counts(report: MaskReport, one: Looked) -> None:
    title, found = one.where.title, len(one.pairs.images)
    if found != COUNTS[title]:
        report.notes.append(f"{title} has {found:,} pairs; published are {COUNTS[title]:,}")


def _tell_encoding(report: MaskReport, one: Looked) -> None:
    title = one.where.title
    other = {kind: count for kind, count in one.encodings.items() if kind != _USUAL}
    if other:
        told = ", ".join(f"{kind} ({count:,})" for kind, count in other.items())
        report.notes.append(f"{title}: published label images are {_USUAL}; there are {told}")
    if one.colored:
        report.problems.append(
            f"{title}: {len(one.colored):,} label images are coloured: those of the full ADE20K "
            "release are (red and green code the class), the scene parsing benchmark's hold "
            "numbers 0 to 150"
        )


def _converted(looked: list[Looked], num_classes: int) -> str | None:
    """What to say if the label images hold class indices already, so that all would be shifted."""
    raw = {value for one in looked for value in one.raw}
    if IGNORED not in raw or num_classes in raw:
        return None
    return (
        f"the value {IGNORED} occurs, which the published label images never have, and "
        f"{num_classes} does not: were they converted to 0 to {num_classes - 1} with {IGNORED} for "
        "'ignored', as annotations_detectron2 is? Training takes 1 off every value and would learn "
        "wrong names; use the published ones"
    )
