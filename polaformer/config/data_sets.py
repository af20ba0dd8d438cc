"""The data sets of a config: their files listed but none decoded, or their published sizes."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

from polaformer.config.keys import Finding
from polaformer.config.metrics import Annotations
from polaformer.config.plan import DataFound
from polaformer.config.refusals import REFUSALS, refusal
from polaformer.config.signatures import keywords_of, resolve
from polaformer.config.trial import quiet
from polaformer.errors import UserError

_ROOTS = ("data_root", "root", "ann_file")
SPLITS = ("train", "val", "test")
_MASKS = "polaformer.SegmentationDataset"

IMAGENET_IMAGES = {"train": 1_281_167, "val": 50_000}
"""Sizes of ImageNet-1K (ILSVRC 2012), to plan with where the data are not on this machine."""

COCO_IMAGES = {
    "instances_train2017.json": (118_287, 117_266),
    "instances_val2017.json": (5_000, 4_952),
}
"""Images of COCO 2017, and those of them with objects."""

MASK_IMAGES = {
    "ade20k": (20_210, 2_000),
    "cityscapes": (2_975, 500),
    "voc2012": (1_464, 1_449),
    "coco_stuff": (118_287, 5_000),
}
"""Known set of classes -> images with masks to train on and to validate: ADE20K's scene parsing
benchmark (arXiv 1608.05442), Cityscapes' fine annotations (arXiv 1604.01685), the segmentation
lists of Pascal VOC 2012, and COCO-Stuff on COCO 2017 (arXiv 1612.03716)."""


@dataclass
class Found:
    """What the data sets of a config hold, and what is wrong with them."""

    data: dict[str, DataFound] = field(default_factory=dict)
    mistakes: list[Finding] = field(default_factory=list)
    annotations: dict[str, Annotations] = field(default_factory=dict)
    listed: dict[str, Any] = field(default_factory=dict)
    """The data sets themselves, no image of them decoded."""


def find_data(cfg: Mapping[str, Any], touched: Callable[[str], bool]) -> Found:
    """List the data of every split; those with a mistake at a key that is ``touched`` are not."""
    found, told = Found(), set()
    scope = cfg.get("default_scope")
    for split in SPLITS:
        key = f"{split}_dataloader.dataset"
        loader = cfg.get(f"{split}_dataloader")
        dataset = loader.get("dataset") if isinstance(loader, Mapping) else None
        kind = dataset.get("type") if isinstance(dataset, Mapping) else None
        if dataset is None or not isinstance(kind, str) or touched(key):
            continue
        try:
            listed = found.listed[split] = list_dataset(dataset, scope)
            found.data[split] = DataFound(len(listed), _classes(listed), root_of(dataset))
            found.annotations.update(_annotations(split, listed))
        except (UserError, OSError) as error:
            if str(error) not in told:
                found.mistakes.append(_refused(key, error, dataset, scope))
            told.add(str(error))
            expected = _published(dataset)
            if expected is not None:
                found.data[split] = expected
        except REFUSALS as error:
            found.mistakes.append(Finding(key, refusal(error)))
    return found


def _classes(dataset: Any) -> tuple[str, ...]:
    names = getattr(dataset, "classes", None)
    if names is None:  # data sets of mmengine, and those around several data sets
        names = (getattr(dataset, "metainfo", None) or {}).get("classes")
    return tuple(names or ())


def _annotations(split: str, dataset: Any) -> dict[str, Annotations]:
    meta = getattr(dataset, "metainfo", None) or {}
    if not {"ann_file", "category_ids"} <= meta.keys():
        return {}
    return {split: Annotations(str(meta["ann_file"]), tuple(meta["category_ids"]))}


def _refused(key: str, error: Exception, dataset: Mapping[str, Any], scope: str | None) -> Finding:
    """What a data set refuses; only a sentence about its missing root says that data are absent."""
    text = str(error)
    roots = roots_of(dataset) or _default_roots(dataset, scope)
    if not any(_is_missing(root, text) for root in roots):
        return Finding(key, text)
    if "prepare_data" not in text and "README" not in text:
        text += "; data/README.md says how to get it"
    return Finding(key, text, absent=True)


def _default_roots(dataset: Mapping[str, Any], scope: str | None) -> list[str]:
    target = resolve(dataset.get("type"), "DATASETS", scope)
    parameters = inspect.signature(target).parameters if target is not None else {}
    defaults = [parameters[name].default for name in _ROOTS if name in parameters]
    return [value for value in defaults if isinstance(value, str) and value]


def _is_missing(root: str, text: str) -> bool:
    path = Path(root).expanduser()
    return not path.exists() and any(
        str(form) in text for form in (root, path, path.absolute(), os.path.abspath(path))
    )


def _asked(dataset: Mapping[str, Any]) -> tuple[str, ...]:
    """The classes that a data set's config names."""
    meta = dataset.get("metainfo")
    named = dataset.get("classes") or (meta.get("classes") if isinstance(meta, Mapping) else None)
    return _known_set(named) if isinstance(named, str) else tuple(named or ())


def _known_set(name: str) -> tuple[str, ...]:
    """The classes of a set that segmentation data may name, or none."""
    known = getattr(resolve(_MASKS, "DATASETS", None), "known_classes", None)
    try:
        return tuple(known(name)) if known is not None else ()
    except UserError:
        return ()


def _published(dataset: Mapping[str, Any]) -> DataFound | None:
    """The published size of a data set that is not here, or None."""
    names = _asked(dataset)
    images: int | None = None
    if str(dataset["type"]).endswith("ImageNet") and not names:
        from timm.data import ImageNetInfo

        names = tuple(ImageNetInfo("imagenet-1k").label_names())
        images = IMAGENET_IMAGES.get(str(dataset.get("split", "train")))
    elif str(dataset["type"]).endswith("CocoDataset"):
        sizes = COCO_IMAGES.get(Path(str(dataset.get("ann_file"))).name)
        dropping = dataset.get("images_without_objects") == "drop" and not dataset.get("test_mode")
        if sizes is not None and not (names and dropping):
            images, names = sizes[dropping], names or coco_names()
    elif str(dataset["type"]) == _MASKS and isinstance(dataset.get("classes"), str):
        sizes = MASK_IMAGES.get(dataset["classes"])
        images = None if sizes is None else sizes[bool(dataset.get("test_mode"))]
    return None if images is None else DataFound(images, names, root_of(dataset), present=False)


def coco_names() -> tuple[str, ...]:
    """The 80 classes of COCO."""
    target = resolve("CocoDataset", "DATASETS", "mmdet")
    return tuple(getattr(target, "METAINFO", {}).get("classes", ()))


def root_of(dataset: Mapping[str, Any]) -> str:
    """The folder, archive or list that a dataset's config names."""
    return ", ".join(roots_of(dataset)) or "?"


def roots_of(dataset: Any) -> list[str]:
    """As ``root_of``, of every data set inside of this one."""
    if isinstance(dataset, list | tuple):
        found = [root for one in dataset for root in roots_of(one)]
    elif isinstance(dataset, Mapping):
        own = next((dataset[name] for name in _ROOTS if dataset.get(name)), None)
        inner = [root for n in ("dataset", "datasets") for root in roots_of(dataset.get(n))]
        found = [str(own), *inner] if own is not None else inner
    else:
        found = []
    return list(dict.fromkeys(found))


def list_dataset(dataset: Mapping[str, Any], scope: str | None) -> Any:
    """The dataset of a config, its files listed but none decoded; raises what it refuses.

    Configs that share data share the listing, as long as the folder has not changed.
    """
    files = [path.resolve() for path in _files_of(dataset)]
    changed = tuple(path.stat().st_mtime_ns for path in files if path.exists())
    return _listed(_freeze(dataset), scope, (tuple(map(str, files)), changed))


def _files_of(dataset: Any) -> Iterator[Path]:
    """The root of a data set, its split and annotation file, and those of the ones inside."""
    if isinstance(dataset, list | tuple):
        for one in dataset:
            yield from _files_of(one)
    elif isinstance(dataset, Mapping):
        for root in roots_of({**dataset, "dataset": None, "datasets": None}):
            path = Path(root).expanduser()
            yield from (path, *(path / str(dataset.get(n) or "") for n in ("split", "ann_file")))
        for name in ("dataset", "datasets"):
            yield from _files_of(dataset.get(name))


def forget_listings() -> None:
    """Free the lists of files of all datasets that were checked."""
    _listed.cache_clear()


@lru_cache(maxsize=8)
def _listed(frozen: Any, scope: str | None, stamp: Any) -> Any:
    from mmengine.registry import DATASETS, DefaultScope

    cfg = _thaw(frozen)
    _undecoded(cfg, scope)
    with quiet(), DefaultScope.overwrite_default_scope(scope):
        return DATASETS.build(cfg)


def _undecoded(cfg: Any, scope: str | None) -> None:
    """Switch off, in place, the check of every image of a data set and of those inside of it."""
    if isinstance(cfg, list | tuple):
        for one in cfg:
            _undecoded(one, scope)
    elif isinstance(cfg, dict):
        target = resolve(cfg.get("type"), "DATASETS", scope)
        if target is not None and "check" in keywords_of(target).names:
            cfg["check"] = "none"
        for name in ("dataset", "datasets"):
            _undecoded(cfg.get(name), scope)


def _freeze(node: Any) -> Any:
    """A config as a hashable value."""
    if isinstance(node, Mapping):
        return ("dict", tuple((key, _freeze(value)) for key, value in node.items()))
    if isinstance(node, list | tuple):
        return (type(node).__name__, tuple(_freeze(value) for value in node))
    return node


def _thaw(node: Any) -> Any:
    if isinstance(node, tuple) and node and node[0] == "dict":
        return {key: _thaw(value) for key, value in node[1]}
    if isinstance(node, tuple):
        values = [_thaw(value) for value in node[1]]
        return values if node[0] == "list" else tuple(values)
    return node
