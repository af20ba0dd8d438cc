"""What evaluators report and need."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from polaformer.config.keys import Finding

EVALUATORS = ("val_evaluator", "test_evaluator")
_AVERAGES = ("", "_50", "_75", "_s", "_m", "_l")
_MASK_PARTS = frozenset({"mask_head", "segm_head", "panoptic_head", "panoptic_fusion_head"})
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


_REPORTED = {"polaformer.Accuracy": _accuracy, "polaformer.CocoMetric": _coco}


def masks(cfg: Mapping[str, Any]) -> Iterator[Finding]:
    """Masks are evaluated and learned only where there are masks."""
    model = cfg.get("model")
    if not isinstance(model, Mapping):
        return
    kind = str(model.get("type")).removeprefix("mmdet.")
    has_masks = _holds(model, _MASK_PARTS)
    for name in EVALUATORS:
        for key, evaluator in _evaluators(cfg, name):
            wanted = _listed(evaluator.get("metric", ()))
            if "segm" in wanted and kind in _BOXES_ONLY and not has_masks:
                text = f"'segm' needs masks, but {kind} has no mask head here; write metric='bbox'"
                yield Finding(f"{key}.metric", text)
    if has_masks and kind in _BOXES_ONLY:
        yield from _loaded(cfg)


def _loaded(cfg: Mapping[str, Any]) -> Iterator[Finding]:
    """Masks are loaded for a mask head to learn from."""
    loader = cfg.get("train_dataloader")
    dataset = loader.get("dataset") if isinstance(loader, Mapping) else None
    pipeline = dataset.get("pipeline") if isinstance(dataset, Mapping) else None
    for index, step in enumerate(pipeline if isinstance(pipeline, list | tuple) else ()):
        if not isinstance(step, Mapping) or step.get("type") != "LoadAnnotations":
            continue
        if not step.get("with_mask"):
            key = f"train_dataloader.dataset.pipeline.{index}"
            yield Finding(key, "the mask head learns from masks; add with_mask=True")


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
