"""Which task a config is about, and evaluators that are for another."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from polaformer.config.keys import Finding
from polaformer.config.pipelines import typed
from polaformer.config.schema import EVALUATORS

_PARTS = {
    "decode_head": "segmentation",
    "bbox_head": "detection",
    "rpn_head": "detection",
    "roi_head": "detection",
}
_METRICS = {
    "classification": "polaformer.Accuracy",
    "detection": "polaformer.CocoMetric",
    "segmentation": "polaformer.SegmentationMetric",
}


def task_of(cfg: Mapping[str, Any]) -> str | None:
    """'classification', 'detection' or 'segmentation' by the parts of the model, or None."""
    model = cfg.get("model")
    if not isinstance(model, Mapping):
        return None
    found = next((task for part, task in _PARTS.items() if part in model), None)
    classifies = str(model.get("type")).endswith("ImageClassifier")
    return "classification" if found is None and classifies else found


def evaluators(cfg: Mapping[str, Any]) -> Iterator[Finding]:
    """Each of our metrics is for the task of the model."""
    task = task_of(cfg)
    if task is None:
        return
    others = {kind: other for other, kind in _METRICS.items() if other != task}
    for name in EVALUATORS:
        for key, metric in typed(name, cfg.get(name)):
            kind = metric.get("type")
            if kind in others:
                text = f"'{kind}' is for {others[kind]}, but the model is for {task}; write "
                yield Finding(f"{key}.type", f"{text}'{_METRICS[task]}'")
