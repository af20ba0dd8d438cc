"""Which label image belongs to which image, and what has no partner."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from unicodedata import normalize

from polaformer.datasets.decode import is_image_name
from polaformer.datasets.layout import name_some
from polaformer.datasets.sources import FolderSource
from polaformer.errors import UserError, did_you_mean

_EXAMPLES = 3
DOUBLE = "the same name as "
"""How the reason for a file begins that is not the only one of its name."""


@dataclass
class Pairs:
    """Names below the two folders; ``masks`` is empty where there are no label images.

    ``alone`` has (path, reason) of every file that has no partner or more than one. ``notes`` say
    what was left out silently.
    """

    stems: list[str] = field(default_factory=list)
    images: list[str] = field(default_factory=list)
    masks: list[str] = field(default_factory=list)
    alone: list[tuple[str, str]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


class Folder:
    """The image files of a folder by stem: the name below it without ``suffix`` (None: its ending).

    Folders in ``without`` are not entered.
    """

    def __init__(self, path: str, suffix: str | None, without: Sequence[str] = ()) -> None:
        self.path = path
        self.suffix = suffix
        self.files: dict[str, list[str]] = {}
        self.others: list[str] = []
        self.places: dict[str, str] = {}
        inner = [f"{place}/" for place in map(self._below, without) if place]
        for name in FolderSource(Path(path)).listing().files:
            if not any(name.startswith(place) for place in inner):
                self._take(name)

    def _below(self, path: str) -> str | None:
        relative = os.path.relpath(os.path.realpath(path), os.path.realpath(self.path))
        return None if relative in (".", "..") or relative.startswith("../") else relative

    def _take(self, name: str) -> None:
        stem = self.stem(name)
        if stem is None:
            self.others.append(name)
        else:
            self.files.setdefault(normalize("NFC", stem), []).append(name)

    def stem(self, name: str) -> str | None:
        """``name`` without what files of this folder end in; None if it does not end so."""
        if self.suffix is not None:
            fits = name.lower().endswith(self.suffix.lower())
            return name[: len(name) - len(self.suffix)] if fits else None
        return os.path.splitext(name)[0] if is_image_name(name) else None

    def shown(self, name: str) -> str:
        return os.path.join(self.path, name)

    def require_files(self, what: str) -> None:
        """Raise UserError if there is not a single file."""
        if self.files:
            return
        ending = f" that ends in '{self.suffix}'" if self.suffix else ""
        there = f"; it holds: {name_some(self.others, 5)}" if self.others else "; it is empty"
        raise UserError(f"{self.path} has no {what}{ending}{there}")


def find_pairs(
    image_folder: str,
    mask_folder: str | None,
    img_suffix: str | None,
    seg_map_suffix: str | None,
    ann_file: str = "",
) -> Pairs:
    """The images of a folder, or those that ``ann_file`` lists, with their label images.

    Raises UserError if a folder has none, or if no image has a partner.
    """
    _check_folders(image_folder, mask_folder, img_suffix, seg_map_suffix)
    images = Folder(image_folder, img_suffix, [mask_folder] if mask_folder else ())
    images.require_files("image")
    masks = None
    if mask_folder is not None:
        masks = Folder(mask_folder, seg_map_suffix, [image_folder])
        masks.require_files("label image")
    pairs = Pairs()
    _note_others(pairs, images)
    listed = _listed(ann_file, images, pairs) if ann_file else None
    for stem in sorted(images.files) if listed is None else listed:
        _pair(stem, images, masks, pairs)
    if masks is not None and listed is None:
        for stem in sorted(masks.files.keys() - images.files.keys()):
            pairs.alone += [
                (masks.shown(name), "a label image without its image") for name in masks.files[stem]
            ]
    if not pairs.images:
        raise UserError(_why_none(images, masks, pairs, ann_file, listed))
    return pairs


def _check_folders(
    image_folder: str, mask_folder: str | None, img_suffix: str | None, seg_map_suffix: str | None
) -> None:
    for name, suffix in (("img_suffix", img_suffix), ("seg_map_suffix", seg_map_suffix)):
        if suffix is not None and (not isinstance(suffix, str) or not suffix):
            raise UserError(f"{name}={suffix!r} must be what the names end in ('.png') or None")
    if mask_folder is None or not os.path.samefile(image_folder, mask_folder):
        return
    if None not in (img_suffix, seg_map_suffix) and img_suffix != seg_map_suffix:
        return
    raise UserError(
        f"data_prefix gives {image_folder} for the images and for the label images; name two "
        "folders, or tell the files apart by different img_suffix and seg_map_suffix"
    )


def _note_others(pairs: Pairs, images: Folder) -> None:
    if images.others:
        named = name_some(sorted(images.others), _EXAMPLES)
        why = f"do not end in '{images.suffix}'" if images.suffix else "are no images by their name"
        pairs.notes.append(f"{len(images.others)} files in {images.path} {why}: {named}")


def _pair(stem: str, images: Folder, masks: Folder | None, pairs: Pairs) -> None:
    found = images.files.get(stem, [])
    partners = [] if masks is None else masks.files.get(stem, [])
    if len(found) != 1 or len(partners) > 1:
        pairs.alone += _ambiguous(stem, images, found, "image")
        if masks is not None and len(partners) > 1:
            pairs.alone += _ambiguous(stem, masks, partners, "label image")
        return
    if masks is not None and not partners:
        pairs.alone.append((images.shown(found[0]), _no_mask(stem, masks)))
        return
    pairs.stems.append(stem)
    pairs.images.append(found[0])
    pairs.masks += partners


def _ambiguous(stem: str, folder: Folder, found: list[str], what: str) -> list[tuple[str, str]]:
    if not found:
        return [(folder.shown(stem), f"listed, but there is no such {what}")]
    if len(found) == 1:
        return []
    return [
        (
            folder.shown(found[0]),
            f"{DOUBLE}{name_some(found[1:], _EXAMPLES)}, so it is open which one is the {what}",
        )
    ]


def _no_mask(stem: str, masks: Folder) -> str:
    other = next((s for s in masks.files if s.casefold() == stem.casefold()), None)
    hint = f", but there is {masks.files[other][0]} (case differs)" if other else ""
    return f"an image without its label image in {masks.path}{hint}"


def _listed(ann_file: str, images: Folder, pairs: Pairs) -> list[str]:
    """The stems that ``ann_file`` lists, one a line, also with the ending of the image."""
    stems: list[str] = []
    for line in _lines(ann_file):
        stem = normalize("NFC", line.replace("\\", "/"))
        cut = images.stem(stem)
        if stem not in images.files and cut is not None and cut in images.files:
            stem = cut
        stems.append(stem)
    unique = list(dict.fromkeys(stems))
    if len(unique) < len(stems):
        pairs.notes.append(
            f"{ann_file} lists {len(stems) - len(unique)} names twice; they count once"
        )
    return unique


def _lines(ann_file: str) -> list[str]:
    path = Path(ann_file)
    if not path.is_file():
        there = sorted(e.name for e in os.scandir(path.parent)) if path.parent.is_dir() else []
        hint = did_you_mean(path.name, there)
        raise UserError(
            f"ann_file: there is no file {path}{'; ' + hint if hint else ''}; to use the whole "
            'folder write ann_file=""'
        )
    try:
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except UnicodeDecodeError as error:
        raise UserError(f"{path} is not UTF-8 text") from error
    names = [line.strip() for line in lines if line.strip() and not line.startswith("#")]
    if not names:
        raise UserError(f"{path} lists no image")
    return names


def _why_none(
    images: Folder, masks: Folder | None, pairs: Pairs, ann_file: str, listed: list[str] | None
) -> str:
    if listed and not any(stem in images.files for stem in listed):
        return (
            f"{ann_file} lists no image of {images.path}: it says {name_some(listed, _EXAMPLES)}; "
            f"expected are names like {name_some(sorted(images.files), _EXAMPLES)}"
        )
    if masks is None:
        path, why = pairs.alone[0]
        return f"{images.path}: not a single image is left: {path}: {why}"
    first = sorted(name for names in images.files.values() for name in names)
    second = sorted(name for names in masks.files.values() for name in names)
    text = (
        f"not a single image has a label image of its name: {images.path} holds "
        f"{name_some(first, _EXAMPLES)}; {masks.path} holds {name_some(second, _EXAMPLES)}"
    )
    proposed = propose_suffixes(first, second)
    if proposed is not None:
        text += f"; try img_suffix='{proposed[0]}', seg_map_suffix='{proposed[1]}'"
    return text


def propose_suffixes(images: Sequence[str], masks: Sequence[str]) -> tuple[str, str] | None:
    """(img_suffix, seg_map_suffix) with which every image would get a label image, or None."""
    known, first = set(masks), images[0]
    # Long suffixes that begin with a sign ('_rgb.jpg') before short ones of any kind.
    cuts = [cut for cut in range(1, len(first)) if not first[cut].isalnum()]
    cuts += [cut for cut in range(len(first) - 1, 0, -1) if first[cut].isalnum()]
    for cut in cuts:
        for mask in masks:
            ends = first[cut:], mask[cut:]
            if mask.startswith(first[:cut]) and mask[cut:] and _all_paired(images, known, *ends):
                return ends
    return None


def _all_paired(images: Sequence[str], masks: set[str], image_end: str, mask_end: str) -> bool:
    return all(
        name.endswith(image_end) and name.removesuffix(image_end) + mask_end in masks
        for name in images
    )
