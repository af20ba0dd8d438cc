"""What evaluators report and need."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from polaformer.config.keys import Finding
from polaformer.config.pipelines import data_sets_in, kind_of, typed

EVALUATORS = ("val_evaluator", "test_evaluator")
_AVERAGES = ("", "_50", "_75", "_s", "_m", "_l")
_MASK_PARTS = frozenset({"mask_head", "segm_head", "panoptic_head", "panoptic_fusion_head"})
_MASK_WORDS = re.compile(r"mask|segm|panoptic|ins(?:head|sep)|instance", re.IGNORECASE)
"""What names of parts or classes of mmdet's that make masks have in common."""
_BOXES_ONLY = frozenset({"RetinaNet", "FasterRCNN", "FastRCNN", "MaskRCNN", "CascadeRCNN"})
"""Detectors of mmdet whose masks, if any, come from a part with a name of ``_MASK_PARTS``."""


def metric_names(cfg: Mapping[str, Any], num_classes: int | None) -> set[str] | None:
    """Names that validation will report, or None where they cannot be known beforehand."""
    names: set[str] = set()
    for _, evaluator in _evaluators(cfg, "val_evaluator"):
        reported = _REPORTED.get(str(evaluator.get("type")))
        if reported is None:
            return None
        prefix = f"{evaluator['prefix']}/" if evaluator.get("prefix") else ""
        names |= {f"{prefix}{name}" for name in reported(evaluator, num_classes)}
    return names


def _accuracy(evaluator: Mapping[str, Any], num_classes: int | None) -> Iterator[str]:
    for k in _listed(evaluator.get("topk", (1, 5))):
        if isinstance(k, int) and (num_classes is None or k <= num_classes):
            yield f"top{k}"
    yield from ("mean_class", "loss")


def _coco(evaluator: Mapping[str, Any], num_classes: int | None) -> Iterator[str]:
    for kind in _listed(evaluator.get("metric", ("bbox",))):
        yield from (f"{kind}_mAP{suffix}" for suffix in _AVERAGES)


def _segmentation(evaluator: Mapping[str, Any], num_classes: int | None) -> Iterator[str]:
    if not evaluator.get("format_only"):
        yield from ("mIoU", "mAcc", "aAcc", "mDice", "loss")


_REPORTED = {
    "polaformer.Accuracy": _accuracy,
    "polaformer.CocoMetric": _coco,
    "polaformer.SegmentationMetric": _segmentation,
}


def masks(cfg: Mapping[str, Any], built: Any = None) -> Iterator[Finding]:
    """Masks are evaluated and learned only where there are masks.

    Of a model that cannot be built (None) only the well-known kinds are judged, by the config.
    """
    model = cfg.get("model")
    if not isinstance(model, Mapping):
        return
    kind = str(model.get("type")).removeprefix("mmdet.")
    has_masks = _holds(model, _MASK_PARTS)
    boxes_only = kind in _BOXES_ONLY and not has_masks
    if built is not None and cfg.get("custom_imports") is None:
        boxes_only = boxes_only or _has_no_masks(built)
    for key, _ in _asking_for_masks(cfg):
        if boxes_only:
            text = f"'segm' needs masks, but {kind} has no mask head here; write metric='bbox'"
            yield Finding(f"{key}.metric", text)
    if (has_masks and kind in _BOXES_ONLY) or _holds(model.get("roi_head"), _MASK_PARTS):
        yield from _loaded(cfg)


@dataclass(frozen=True)
class Annotations:
    """The annotation file of a data set and the ids of its categories that are used."""

    path: str
    categories: tuple[int | str, ...]


def unmasked(cfg: Mapping[str, Any], annotations: Mapping[str, Annotations]) -> Iterator[Finding]:
    """Masks are evaluated where some object of the data has one.

    ``annotations`` are those of the splits; an evaluator may name another file.
    """
    for key, evaluator in _asking_for_masks(cfg):
        found = annotations.get(key.partition("_")[0])
        if found is None or evaluator.get("type") != "polaformer.CocoMetric":
            continue
        path = str(evaluator.get("ann_file") or found.path)
        if Path(path).expanduser().is_file() and not _any_mask(path, found.categories):
            text = f"'segm' is asked, but no object in {path} has a usable mask"
            yield Finding(f"{key}.metric", f"{text}; write metric='bbox' or mend the file")


def _any_mask(path: str, categories: Collection[int | str]) -> bool:
    """Whether an object has a mask, or there is none at all."""
    from polaformer.coco.format import read_coco

    used = [one for one in read_coco(path).annotations if one["category_id"] in categories]
    return not used or any(one["segmentation"] for one in used)


def _asking_for_masks(cfg: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for name in EVALUATORS:
        for key, evaluator in _evaluators(cfg, name):
            if "segm" in _listed(evaluator.get("metric", ())):
                yield key, evaluator


def _has_no_masks(model: Any) -> bool:
    """Whether a detector of mmdet has no part that makes masks, going by the names."""
    if not type(model).__module__.startswith("mmdet.") or not hasattr(model, "bbox_head"):
        return False
    names = (f"{name} {type(part).__name__}" for name, part in model.named_modules())
    return not any(_MASK_WORDS.search(name) for name in names)


def _loaded(cfg: Mapping[str, Any]) -> Iterator[Finding]:
    """Masks are loaded for a mask head to learn from."""
    for loader, key, dataset in data_sets_in(cfg):
        if loader != "train_dataloader":
            continue
        for at, step in typed(f"{key}.pipeline", dataset.get("pipeline")):
            if kind_of(step) == "LoadAnnotations" and not step.get("with_mask"):
                yield Finding(at, "the mask head learns from masks; add with_mask=True")


def _holds(node: Any, names: frozenset[str]) -> bool:
    if isinstance(node, Mapping):
        return any(
            (key in names and child is not None) or _holds(child, names)
            for key, child in node.items()
        )
    return isinstance(node, list | tuple) and any(_holds(child, names) for child in node)


def _evaluators(cfg: Mapping[str, Any], name: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Key and config of every metric of an evaluator."""
    value = cfg.get(name)
    if isinstance(value, list | tuple):
        yield from ((f"{name}.{i}", one) for i, one in enumerate(value) if isinstance(one, Mapping))
    elif isinstance(value, Mapping):
        yield name, value


def _listed(value: Any) -> list[Any]:
    return list(value) if isinstance(value, list | tuple) else [value]
