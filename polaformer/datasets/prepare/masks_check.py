"""Look at a user's own images and label images, and say which lines a config needs for them."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from polaformer.datasets.class_sets import IGNORED, ClassSet, class_set, suffixes_of
from polaformer.datasets.coco_pictures import existing_folder
from polaformer.datasets.decode import BadImage
from polaformer.datasets.label_coding import make_coding
from polaformer.datasets.label_maps import LabelCoding
from polaformer.datasets.layout import check_class_names
from polaformer.datasets.mask_checks import MaskFindings, nothing_to_learn, numbering_hint
from polaformer.datasets.prepare.class_pixels import ClassPixels, SplitPixels
from polaformer.datasets.prepare.label_colors import read_label_colors
from polaformer.datasets.prepare.label_files import Raw, thinness
from polaformer.datasets.prepare.mask_advice import Proposal, propose
from polaformer.datasets.prepare.mask_config import config_lines, weight_line
from polaformer.datasets.prepare.mask_look import Looked, RawCount, Where
from polaformer.datasets.prepare.mask_report import (
    MaskReport,
    checked_files,
    look_at_splits,
    tell_classes,
    tell_splits,
)
from polaformer.datasets.sources import FolderReader, PackedNames
from polaformer.errors import UserError

_THIN_IN = 24  # files that are looked at for lines of value 0
_THIN = 0.5
_SHOWN_VALUES = 40
_HINTS = {
    "ade20k": ("adechallengedata2016",),
    "cityscapes": ("gtfine", "gtcoarse"),
    "voc2012": ("segmentationclass",),
    "coco_stuff": ("stuffthingmaps",),
}


@dataclass
class MaskOptions:
    """How files are paired and what their values mean, as ``SegmentationDataset`` takes it.

    ``label_colors`` is a text file with a colour, and maybe a name, a line. ``ann_files`` are lists
    of the images to use, one for each split.
    """

    classes: Sequence[str] | None = None
    class_set: str | None = None
    img_suffix: str | None = None
    seg_map_suffix: str | None = None
    label_values: Sequence[int | Sequence[int]] | None = None
    label_colors: str | None = None
    reduce_zero_label: bool = False
    ignore_values: Sequence[int] | str = ()
    ann_files: Sequence[str] = field(default_factory=tuple)


def check_masks(
    folders: Sequence[str], options: MaskOptions | None = None, files: str = "decode"
) -> MaskReport:
    """Check IMAGES and MASKS, or those of training and then those of validation.

    With classes every value is compared with them; without, the values are listed and a config
    proposed. ``files`` as for ``check_ade20k``. Raises UserError for folders that are not there and
    options that clash.
    """
    checked_files(files)
    given = options or MaskOptions()
    splits = _splits(folders, given)
    known, names, arguments = _classes(given)
    report = MaskReport(title="label images")
    coding = None if names is None else _coding(known, names, arguments, given)
    looked = look_at_splits(splits, coding, files, report)
    tell_splits(report, looked, files, shared_is_problem=True)
    if files == "none" or not looked:
        return report
    if coding is None or names is None:
        _propose(report, splits, looked, given)
        return report
    _tell_unknown(report, looked, coding)
    report.problems += _nothing_to_learn(looked, coding)
    pixels = ClassPixels(names, _raw_names(coding))
    pixels.splits = {one.where.title: one.classes for one in looked if one.classes is not None}
    tell_classes(report, pixels)
    written = _written(arguments)
    _tell_config(report, splits, looked, given.class_set or names, written)
    return report


def _splits(folders: Sequence[str], given: MaskOptions) -> list[Where]:
    if len(folders) not in (2, 4):
        raise UserError(
            f"{len(folders)} folder(s) were given; needed are IMAGES MASKS, or IMAGES MASKS "
            "VAL_IMAGES VAL_MASKS"
        )
    titles = ("train", "val") if len(folders) == 4 else ("files",)
    if given.ann_files and len(given.ann_files) != len(titles):
        raise UserError(
            f"--ann-file has {len(given.ann_files)} file(s) for {len(titles)} split(s); give one "
            "for each"
        )
    lists = list(given.ann_files) or [""] * len(titles)
    known = class_set(given.class_set) if given.class_set is not None else None
    image_end, mask_end = suffixes_of(known, given.img_suffix, given.seg_map_suffix)
    found = []
    for i, title in enumerate(titles):
        images, masks = (_folder(path) for path in folders[2 * i : 2 * i + 2])
        ann_file = os.path.expanduser(lists[i])
        found.append(Where(title, images, masks, image_end, mask_end, ann_file))
    return found


def _folder(path: str) -> str:
    path = os.path.expanduser(path)
    if os.path.isfile(path):
        raise UserError(f"{path} is a file, not a folder (archives are unpacked first)")
    try:
        return existing_folder(path)
    except UserError as error:
        raise UserError(str(error).removeprefix("data_prefix: ")) from error


def _classes(
    given: MaskOptions,
) -> tuple[ClassSet | None, tuple[str, ...] | None, dict[str, Any]]:
    """The known set, the names, and further arguments of the data set; names None if unknown."""
    arguments: dict[str, Any] = {}
    names = None if given.classes is None else check_class_names(given.classes)
    if given.label_colors is not None:
        colors, named = read_label_colors(given.label_colors)
        arguments["label_colors"] = list(colors)
        names = named if names is None else names
    if given.class_set is not None:
        if names is not None:
            raise UserError(
                "--class-set brings names, so it goes neither with --classes nor with names in "
                "the file of --label-colors"
            )
        known = class_set(given.class_set)
        names = known.classes
    else:
        known = None
    for key in ("label_values", "ignore_values"):
        if getattr(given, key):
            arguments[key] = getattr(given, key)
    if given.reduce_zero_label:
        arguments["reduce_zero_label"] = True
    if names is None and arguments:
        option = next(iter(arguments)).replace("_", "-")
        raise UserError(f"--{option} needs --classes: it gives a meaning to each of them in turn")
    return known, names, arguments


def _coding(
    known: ClassSet | None,
    names: Sequence[str],
    arguments: Mapping[str, Any],
    given: MaskOptions,
) -> LabelCoding:
    converted = "trainids" in (given.seg_map_suffix or "").lower()
    return make_coding(names, known, converted=converted, **arguments)


def _raw_names(coding: LabelCoding) -> list[str]:
    """The values or colours of every class, as the files write them."""
    told: list[list[str]] = [[] for _ in range(len(coding.classes))]
    table: Mapping = coding.values if coding.colors is None else coding.colors
    for raw, label in table.items():
        if label != IGNORED:
            told[label].append(str(raw))
    return [", ".join(texts) for texts in told]


def _tell_unknown(report: MaskReport, looked: Sequence[Looked], coding: LabelCoding) -> None:
    """All values that are no class, over the splits, and what they say about the options."""
    unknown: Counter[Raw] = sum((one.unknown for one in looked), start=Counter())
    raw = _merged(looked)
    if not unknown:
        return
    told = "; ".join(f"{raw}: {count:,} pixels" for raw, count in unknown.most_common(10))
    more = f"; … and {len(unknown) - 10} more" if len(unknown) > 10 else ""
    what = "values" if coding.colors is None else "colours"
    report.problems.append(f"{what} that are no class: {told}{more}; allowed: {coding.rule}")
    values = MaskFindings(values=Counter({value: count.pixels for value, count in raw.items()}))
    if hint := numbering_hint(values, coding):
        report.notes.append(hint)


def _nothing_to_learn(looked: Sequence[Looked], coding: LabelCoding) -> list[str]:
    """Why the label images of the first split, the one for training, teach nothing."""
    first = looked[0]
    if first.classes is None or first.unknown:
        return []
    pixels = np.zeros(256, np.int64)
    pixels[: len(coding.classes)] = first.classes.pixels
    pixels[IGNORED] = first.classes.ignored
    told = nothing_to_learn(pixels, first.counted, coding)
    if told is None:
        return []
    option = " (here --label-values with the numbers)" if "label_values" in told else ""
    return [f"{first.where.title}: {told}{option}"]


def _propose(
    report: MaskReport, splits: Sequence[Where], looked: Sequence[Looked], given: MaskOptions
) -> None:
    raw = _merged(looked)
    proposal = propose(
        raw,
        sum(one.counted for one in looked),
        sum(one.values_seen for one in looked),
        _zero_is_thin(looked),
    )
    report.notes += proposal.notes + _name_hints(splits)
    report.problems += proposal.problems
    if not proposal.raw:
        report.lines += _value_lines(raw)
        return
    pixels = ClassPixels(proposal.names, [str(value) for value in proposal.raw])
    pixels.splits = {one.where.title: _of_raw(one, proposal) for one in looked}
    tell_classes(report, pixels)
    report.lines += ["", "The classes have no names yet: those below stand in for yours, in order."]
    _tell_config(report, splits, looked, proposal.names, _written(proposal.options))


def _merged(looked: Sequence[Looked]) -> dict[Raw, RawCount]:
    merged: dict[Raw, RawCount] = {}
    for one in looked:
        for value, count in one.raw.items():
            into = merged.setdefault(value, RawCount())
            into.pixels += count.pixels
            into.files += count.files
            into.area += count.area
    return merged


def _of_raw(one: Looked, proposal: Proposal) -> SplitPixels:
    counts = [one.raw.get(value, RawCount()) for value in proposal.raw]
    every = sum(count.pixels for count in one.raw.values())
    found = SplitPixels(
        np.array([count.pixels for count in counts], np.int64),
        np.array([count.files for count in counts], np.int64),
        np.array([count.area for count in counts], np.int64),
    )
    found.ignored = every - int(found.pixels.sum())
    return found


def _zero_is_thin(looked: Sequence[Looked]) -> bool:
    """Whether value 0 forms lines only, in some of the files that have it."""
    beside, zeros = 0, 0
    for one in looked:
        if 0 not in one.raw or len(one.raw) < 3:
            continue
        step = max(1, len(one.pairs.masks) // _THIN_IN)
        reader = FolderReader(one.where.masks, PackedNames(one.pairs.masks[::step]))
        for index in range(len(reader.names)):
            try:
                found = thinness(reader.read(index))
            except (BadImage, OSError):
                continue
            beside, zeros = beside + found[0], zeros + found[1]
    return zeros > 0 and beside > _THIN * zeros


def _name_hints(splits: Sequence[Where]) -> list[str]:
    """Known class sets that the names of the folders remind of."""
    path = "/".join((splits[0].masks, splits[0].seg_map_suffix or "")).lower()
    return [
        f"the names look like a published data set; --class-set {name} checks its classes"
        for name, words in _HINTS.items()
        if any(word in path for word in words)
    ]


def _value_lines(raw: Mapping[Raw, RawCount]) -> list[str]:
    """Every value or colour with its share, the most frequent first."""
    total = sum(count.pixels for count in raw.values())
    order = sorted(raw, key=lambda value: -raw[value].pixels)
    lines = [f"{'value':>18} {'pixels':>12} {'files':>9}"] if order else []
    for value in order[:_SHOWN_VALUES]:
        share = f"{100 * raw[value].pixels / total:.4g} %"
        lines.append(f"{value!s:>18} {share:>12} {raw[value].files:>9,}")
    more = len(order) - _SHOWN_VALUES
    return lines if more <= 0 else [*lines, f"… and {more:,} more"]


def _written(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """``arguments`` as they stand in a config."""
    return {
        key: value if isinstance(value, (str, bool)) or key == "label_colors" else tuple(value)
        for key, value in arguments.items()
    }


def _tell_config(
    report: MaskReport,
    splits: Sequence[Where],
    looked: Sequence[Looked],
    classes: Sequence[str] | str,
    arguments: Mapping[str, Any],
) -> None:
    lines = config_lines(splits, classes, arguments)
    report.lines += ["", "In a config, over a recipe for ADE20K in configs/segmentation:", *lines]
    if report.classes is not None and not any(one.unknown for one in looked):
        weights = weight_line(report.classes.weights().tolist())
        report.lines += ["", "Weights against unequal shares, by median frequency:", weights]
