"""Where masks are loaded in the pipelines of segmentation data, and what stands in a batch."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from polaformer.config.keys import Finding
from polaformer.config.pipelines import data_sets_in, kind_of, steps_of
from polaformer.config.segmentation_heads import is_segmentation

_LOADING = frozenset({"LoadMask", "LoadAnnotations"})
_RESIZING = frozenset(
    {
        *("Resize", "RandomResize", "RandomChoiceResize", "ResizeShortestEdge"),
        *("ResizeToMultiple", "SegRescale", "RandomCrop", "CenterCrop", "Pad"),
    }
)
_TURNING = frozenset({"RandomFlip", "RandomRotate", "RandomRotFlip", "RandomAffine"})
_MASK = "dict(type='polaformer.LoadMask')"
_SEEN = 200
"""Images whose sizes are compared."""
_CODING = (
    *("reduce_zero_label", "label_values", "label_colors", "ignore_values", "ignore_colors"),
)
"""What says which value or colour of a label image is which class."""


def mask_loading(cfg: Mapping[str, Any]) -> Iterator[Finding]:
    """Masks are loaded once, before what changes both in training, after it where they are truth.

    Pipelines of data sets from other packages are held to the same order. Data sets of ours are
    read by one coding in training and evaluation.
    """
    if not is_segmentation(cfg):
        return
    yield from _one_coding(cfg)
    if cfg.get("custom_imports") is not None:
        return
    for loader, key, dataset in data_sets_in(cfg):
        if dataset.get("pipeline") is None:  # data sets around others
            continue
        ours = kind_of(dataset) == "SegmentationDataset"
        steps = list(steps_of(f"{key}.pipeline", dataset.get("pipeline")))
        if loader == "train_dataloader":
            yield from _once(
                f"{key}.pipeline", steps, ours, "to learn from; add it after LoadImage"
            )
            yield from _before(steps)
        elif cfg.get(loader.replace("dataloader", "evaluator")) is None or _without_masks(dataset):
            continue
        else:
            text = "to compare with; add it before PackSegInputs"
            yield from _once(f"{key}.pipeline", steps, ours, text)
            yield from _after(steps, _RESIZING)
    if cfg.get("tta_pipeline") is not None:
        steps = list(steps_of("tta_pipeline", cfg["tta_pipeline"]))
        tested = [data for loader, _, data in data_sets_in(cfg) if loader == "test_dataloader"]
        ours = any(kind_of(data) == "SegmentationDataset" for data in tested)
        if not tested or not all(map(_without_masks, tested)):
            text = "to compare with; add it before PackSegInputs"
            yield from _once("tta_pipeline", steps, ours, text)
        yield from _after(steps, _RESIZING | _TURNING)


def _one_coding(cfg: Mapping[str, Any]) -> Iterator[Finding]:
    """Training and evaluation read their label images alike, certainly those below one folder."""
    ours = [one for one in data_sets_in(cfg) if kind_of(one[2]) == "SegmentationDataset"]
    learned = [(key, data) for loader, key, data in ours if loader == "train_dataloader"]
    told: list[Mapping[str, Any]] = []
    for loader, key, data in ours:
        if loader == "train_dataloader" or _without_masks(data) or data in told:
            continue
        near = [one for one in learned if _root(one[1]) == _root(data)] or learned
        if not near or any(_coding(other) == _coding(data) for _, other in near):
            continue
        told.append(data)
        there, other = near[0]
        name = next(k for k in _CODING if _coding(other).get(k) != _coding(data).get(k))
        same = _root(other) == _root(data)
        yield Finding(
            f"{key}.{name}",
            f"{_given(data, name)}, but {there}.{name} {_given(other, name)}: training and "
            "evaluation would number the classes of their label images differently; write it in "
            "both" + ("" if same else ", unless the files do differ"),
            because=f"{there}.{name}",
            note=not same,
        )


def _without_masks(data: Mapping[str, Any]) -> bool:
    prefix = data.get("data_prefix")
    return isinstance(prefix, Mapping) and prefix.get("seg_map_path", "") is None


def _root(data: Mapping[str, Any]) -> str:
    return os.path.normpath(str(data.get("data_root") or ""))


def _coding(data: Mapping[str, Any]) -> dict[str, Any]:
    """The options of ``_CODING`` that are given; what only repeats the default is left out."""
    given = {key: _plain(data.get(key)) for key in _CODING}
    known = data.get("classes")
    if given["reduce_zero_label"] is (known == "ade20k") and (
        known == "ade20k" or not isinstance(known, str)
    ):
        del given["reduce_zero_label"]
    return {key: value for key, value in given.items() if value not in (None, ())}


def _plain(value: Any) -> Any:
    return tuple(map(_plain, value)) if isinstance(value, list | tuple) else value


def _given(data: Mapping[str, Any], name: str) -> str:
    value = data.get(name)
    return "is not given" if value is None else f"is {value!r}"


def _once(
    key: str, steps: list[tuple[str, Mapping[str, Any]]], ours: bool, purpose: str
) -> Iterator[Finding]:
    """One step loads the masks, and it is the one that knows how the files are numbered."""
    loading = [(at, step) for at, step in steps if kind_of(step) in _LOADING]
    name = _MASK if ours else "dict(type='LoadAnnotations')"
    if not loading:
        yield Finding(key, f"no step loads the masks {purpose}: {name}")
    for at, step in loading[1:]:
        yield Finding(at, f"{kind_of(step)} loads the masks once more; leave one of the two")
    for at, step in loading[:1] if ours else ():
        if kind_of(step) == "LoadAnnotations":
            twice = "applies reduce_zero_label past" if step.get("reduce_zero_label") else "ignores"
            text = f"LoadAnnotations {twice} what the data set says about its values; write {_MASK}"
            yield Finding(at, text)


def _before(steps: list[tuple[str, Mapping[str, Any]]]) -> Iterator[Finding]:
    """In training the masks are there before anything changes images and masks together."""
    changing = ""
    for at, step in steps:
        kind = kind_of(step)
        if kind in _LOADING and changing:
            text = f"{kind} stands after {changing}, which changes the image alone then; put it "
            yield Finding(at, f"{text}before")
            return
        if kind in _RESIZING | _TURNING:
            changing = changing or kind


def _after(
    steps: list[tuple[str, Mapping[str, Any]]], changing: frozenset[str]
) -> Iterator[Finding]:
    """The truth of an evaluation keeps its own size."""
    loaded: tuple[str, str] | None = None
    for at, step in steps:
        kind = kind_of(step)
        if kind in _LOADING:
            loaded = loaded or (at, kind)
        elif loaded and kind in changing:
            text = f"{loaded[1]} stands before {kind}, which changes the truth too; put it after"
            yield Finding(loaded[0], text)
            return


def sizes_in_a_batch(cfg: Mapping[str, Any], listed: Mapping[str, Any]) -> Iterator[Finding]:
    """Images of one batch of an evaluation have one size; ``listed`` are the data sets found."""
    if not is_segmentation(cfg):
        return
    for split in ("val", "test"):
        key = f"{split}_dataloader"
        loader = cfg.get(key)
        size = loader.get("batch_size", 1) if isinstance(loader, Mapping) else 1
        if not isinstance(size, int) or size <= 1:
            continue
        dataset = loader["dataset"] if isinstance(loader, Mapping) else None
        steps = steps_of("", dataset.get("pipeline") if isinstance(dataset, Mapping) else None)
        if any(_to_one_size(step) for _, step in steps):
            continue
        sizes = _sizes(listed.get(split))
        if len(sizes) != 1:
            told = f"they are {_some(sizes)}" if sizes else "theirs are not known here"
            text = f"{size} images in a batch must have one size, and {told}; write 1"
            yield Finding(f"{key}.batch_size", text, note=not sizes)


def _to_one_size(step: Mapping[str, Any]) -> bool:
    fixed = kind_of(step) == "Resize" and step.get("scale") is not None
    return (fixed and not step.get("keep_ratio")) or (
        kind_of(step) == "Pad" and step.get("size") is not None
    )


def _sizes(dataset: Any) -> set[tuple[int, int]]:
    """Widths and heights of the first images, read off their heads."""
    from PIL import Image

    found = set()
    for index in range(min(len(dataset), _SEEN) if dataset is not None else 0):
        path = Path(str(dataset.get_data_info(index).get("img_path")))
        try:
            with Image.open(path) as image:
                found.add(image.size)
        except (OSError, ValueError):  # said when the data are read
            continue
    return found


def _some(sizes: set[tuple[int, int]]) -> str:
    listed = [f"{wide} x {high}" for wide, high in sorted(sizes)]
    return " and ".join(listed[:2]) + (f" (and {len(listed) - 2} more)" if len(listed) > 2 else "")
