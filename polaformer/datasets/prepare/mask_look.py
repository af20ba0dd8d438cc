"""A look at a folder of images and one of label images: pairs, sizes, values, broken files."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from polaformer.datasets.class_sets import IGNORED
from polaformer.datasets.decode import BadImage, turn_is_open
from polaformer.datasets.integrity import Size, reason
from polaformer.datasets.label_maps import BadLabels, LabelCoding
from polaformer.datasets.mask_checks import TURNED
from polaformer.datasets.mask_pairs import DOUBLE, Pairs, find_pairs
from polaformer.datasets.prepare.class_pixels import SplitPixels
from polaformer.datasets.prepare.coco_files import Files, look_at_files
from polaformer.datasets.prepare.findings import Finding
from polaformer.datasets.prepare.label_files import LabelFile, Raw, look_at_labels
from polaformer.datasets.progress import looked_at
from polaformer.datasets.sources import FolderReader, PackedNames

_MOST_MERGED = 65_536
_ITS_LABELS = "has its label image"
_NO_MASK, _NO_IMAGE = "an image without its label image", "a label image without its image"
_ALONE = (
    "images without a label image",
    "label images without an image",
    "files that are listed, but are not there",
    "double names: files of which it is open which one counts",
)
_OTHER_SIZE = "images of another size than their label image"
_NO_CLASS = "label images with what is no class"


@dataclass
class Where:
    """One split: its name, the two folders, and how files are paired."""

    title: str
    images: str
    masks: str
    img_suffix: str | None = None
    seg_map_suffix: str | None = None
    ann_file: str = ""


@dataclass
class RawCount:
    """How often a value or colour occurs: pixels, files, and all pixels of those files."""

    pixels: int = 0
    files: int = 0
    area: int = 0


@dataclass
class Looked:
    """What was found in one split; entries of the lists are 'name: reason'.

    ``raw`` counts every value or colour, ``classes`` the pixels of every class where a coding was
    given, ``unknown`` the pixels of values that this does not know.
    """

    where: Where
    pairs: Pairs
    images: Files
    sizes: list[Size | None] = field(default_factory=list)
    broken: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    pictures: list[str] = field(default_factory=list)
    lossy: list[str] = field(default_factory=list)
    turned: list[int] = field(default_factory=list)
    colored: list[str] = field(default_factory=list)
    gray: list[str] = field(default_factory=list)
    encodings: Counter[str] = field(default_factory=Counter)
    raw: dict[Raw, RawCount] = field(default_factory=dict)
    unknown: Counter[Raw] = field(default_factory=Counter)
    values_seen: int = 0
    classes: SplitPixels | None = None

    @property
    def counted(self) -> int:
        """Label images whose values were counted."""
        return self.encodings.total() - len(self.pictures)


def look(where: Where, coding: LabelCoding | None, files: str) -> Looked:
    """Look at every pair of ``where``; without a ``coding`` the values are only counted.

    ``files`` is how closely each image is looked at, 'decode', 'header' or 'none'; label images are
    decoded unless it is 'none'. Raises UserError if there is not a single pair.
    """
    pairs = find_pairs(
        where.images, where.masks, where.img_suffix, where.seg_map_suffix, where.ann_file
    )
    found = Looked(where, pairs, Files(Path(where.images)))
    if files == "none":
        found.images.names = list(pairs.images)
        return found
    reader = FolderReader(where.masks, PackedNames(pairs.masks))
    by_color = coding is not None and coding.colors is not None
    again = _look_at_masks(found, reader, coding, by_color)
    if again and coding is None:
        # Black and white files among coloured ones are colours, too.
        _clear_counts(found)
        _look_at_masks(found, reader, None, True)
    found.images = look_at_files(
        Path(where.images), pairs.images, found.sizes, files, recorded=_ITS_LABELS
    )
    return found


def _clear_counts(found: Looked) -> None:
    for kept in (
        found.sizes,
        found.turned,
        found.broken,
        found.pictures,
        found.lossy,
        found.colored,
    ):
        kept.clear()
    found.encodings.clear()
    found.raw.clear()
    found.values_seen = 0


def _look_at_masks(
    found: Looked, reader: FolderReader, coding: LabelCoding | None, by_color: bool
) -> bool:
    """Count what the label images hold; whether some had colours and others values."""
    if coding is not None:
        found.classes = SplitPixels.empty(len(coding.classes))

    def one(index: int) -> tuple[LabelFile | None, str]:
        try:
            data = reader.read(index)
            seen = look_at_labels(data, by_color)
            return seen, "" if coding is None else _why_wrong(data, seen, coding)
        except (BadImage, OSError) as error:
            return None, reason(error)

    for index, (seen, why) in looked_at(len(reader.names), one, "label images"):
        name = reader.names[index]
        found.sizes.append(None if seen is None else seen.size)
        found.turned.append(1 if seen is None else seen.turned)
        if seen is None:
            found.broken.append(f"{name}: {why}")
            continue
        if why:
            found.wrong.append(f"{name}: {why}")
        _merge(found, name, seen, coding)
    return not by_color and 0 < len(found.colored) < found.encodings.total()


def _why_wrong(data: bytes, seen: LabelFile, coding: LabelCoding) -> str:
    """Why training would refuse the file, or ''."""
    if seen.is_picture:
        return ""  # said of all such files together
    known = coding.colors if coding.colors is not None else coding.values
    if seen.colored == (coding.colors is not None) and all(raw in known for raw in seen.pixels):
        return ""
    try:
        coding.decode(data)
    except BadLabels as error:
        return str(error).replace(f"; allowed: {coding.rule}", "")  # told once for all files
    return ""


def _merge(found: Looked, name: str, seen: LabelFile, coding: LabelCoding | None) -> None:
    found.encodings[seen.encoding] += 1
    if seen.lossy:
        found.lossy.append(name)
    if seen.is_picture:
        found.pictures.append(name)
        return
    if seen.colored:
        found.colored.append(name)
    elif seen.is_gray:
        found.gray.append(name)
    area = sum(seen.pixels.values())
    found.values_seen += len(seen.pixels)
    for raw, pixels in seen.pixels.items():
        if raw in found.raw or len(found.raw) < _MOST_MERGED:
            count = found.raw.setdefault(raw, RawCount())
            count.pixels += pixels
            count.files += 1
            count.area += area
    if coding is not None:
        _count_classes(found, seen.pixels, coding)


def _count_classes(found: Looked, pixels: Mapping[Raw, int], coding: LabelCoding) -> None:
    known: Mapping = coding.colors if coding.colors is not None else coding.values
    counts = np.zeros(len(coding.classes), np.int64)
    ignored = 0
    for raw, count in pixels.items():
        label = known.get(raw)
        if label is None and not coding.rest_ignored:
            found.unknown[raw] += count
        if label is None or label == IGNORED:
            ignored += count
        else:
            counts[label] += count
    assert found.classes is not None
    found.classes.add(counts, ignored)


def findings(found: Looked) -> list[Finding]:
    """What is wrong with the files, without what their values mean."""
    images = found.images
    return [
        *lonely(found),
        Finding("broken images", len(images.broken), images.broken),
        Finding("broken label images", len(found.broken), found.broken),
        Finding(_OTHER_SIZE, len(images.other_size), images.other_size),
        Finding(
            "images that EXIF turns, but their label images do not (training does not turn them)",
            len(images.as_stored),
            images.as_stored,
            problem=False,
        ),
        _turned(found),
        Finding(_NO_CLASS, len(found.wrong), found.wrong),
        Finding(
            "label images with so many values or colours that they look like photographs (are "
            "the two folders swapped?)",
            len(found.pictures),
            found.pictures,
        ),
        Finding(
            "gray label images among coloured ones",
            len(found.gray) if found.colored and found.classes is None else 0,
            found.gray,
        ),
        Finding(
            "label images in a format that changes values on saving (take PNG)",
            len(found.lossy),
            found.lossy,
            problem=False,
        ),
    ]


def _turned(found: Looked) -> Finding:
    names = [
        found.pairs.images[i]
        for i, turn in sorted(found.images.turned.items())
        if turn_is_open(turn, found.turned[i], found.sizes[i])
    ]
    return Finding(TURNED, len(names), names, problem=False)


def lonely(found: Looked) -> list[Finding]:
    """Files without a partner, or with more than one."""
    kinds: dict[str, list[str]] = {name: [] for name in _ALONE}
    for path, why in found.pairs.alone:
        if why.startswith(_NO_MASK):
            _, _, hint = why.partition(", but ")
            kinds[_ALONE[0]].append(f"{path}: {hint}" if hint else path)
        elif why == _NO_IMAGE:
            kinds[_ALONE[1]].append(path)
        else:
            kinds[_ALONE[2 + why.startswith(DOUBLE)]].append(f"{path}: {why}")
    return [Finding(label, len(names), names) for label, names in kinds.items()]


def counts(found: Looked, files: str) -> dict[str, int]:
    """The lines of the table for one split."""
    table = {
        "pairs of an image and a label image": len(found.pairs.images),
        **{one.label: one.count for one in lonely(found)},
    }
    if files == "none":
        return table
    seen = "decoded" if files == "decode" else "headers and ends read"
    return {
        **table,
        f"broken images ({seen})": len(found.images.broken),
        "broken label images (decoded)": len(found.broken),
        _OTHER_SIZE: len(found.images.other_size),
        _NO_CLASS: len(found.wrong),
        **{f"label images as {kind}": count for kind, count in found.encodings.most_common()},
    }
