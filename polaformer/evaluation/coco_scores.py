"""Average precision as pycocotools computes it, without its printing and rounding."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from polaformer.errors import UserError

AREAS = {"": 0, "_s": 1, "_m": 2, "_l": 3}
"""Suffix of a size class: objects of up to 32^2, of 32^2 to 96^2 and of at least 96^2 pixels."""


@dataclass
class Scores:
    """pycocotools' tables; -1 where there is no object.

    Axes: T thresholds of overlap, R recalls, K categories (numbered from 1), A size classes, M
    limits on the detections per picture and category.
    """

    precision: np.ndarray
    recall: np.ndarray
    thresholds: np.ndarray

    def ap(
        self, threshold: float | None = None, area: str = "", category: int | None = None
    ) -> float | None:
        """AP in 0..1, the mean over all thresholds and categories that are not named.

        None where there is no object, or where the threshold was not evaluated.
        """
        chosen = self.precision[..., AREAS[area], -1]
        if threshold is not None:
            chosen = chosen[np.isclose(self.thresholds, threshold)]
        if category is not None:
            chosen = chosen[:, :, category - 1]
        return _mean(chosen)

    def recall_at(self, limit: int) -> float | None:
        """AR in 0..1 with the ``limit``-th of the limits on detections; None without objects."""
        return _mean(self.recall[:, :, 0, limit])

    def summary(self) -> dict[str, float | None]:
        """mAP, and mAP at overlap 0.5 and 0.75 and for small, medium and large objects."""
        values = {"mAP": self.ap(), "mAP_50": self.ap(0.5), "mAP_75": self.ap(0.75)}
        return values | {f"mAP{area}": self.ap(area=area) for area in AREAS if area}


def evaluate(
    images: list[dict[str, Any]],
    categories: int,
    objects: list[dict[str, Any]],
    detections: list[dict[str, Any]],
    kind: str,
    max_dets: Sequence[int],
    thresholds: Sequence[float] | None = None,
) -> Scores:
    """Compare ``detections``, entries of a COCO result file, with ``objects``; both are changed.

    Categories are numbered from 1 to ``categories``, pictures and objects from 1 on as well. For
    ``kind`` 'segm' detections have no 'bbox', so that their size class is that of the mask.
    """
    try:
        from pycocotools.coco import COCO
        from pycocotools.cocoeval import COCOeval
    except ImportError as error:
        raise UserError(
            f"CocoMetric needs pycocotools: pip install pycocotools ({error})"
        ) from error

    with contextlib.redirect_stdout(io.StringIO()):
        truth = COCO()
        truth.dataset = {
            "images": images,
            "categories": [{"id": number} for number in range(1, categories + 1)],
            "annotations": objects,
        }
        truth.createIndex()
        found = truth.loadRes(detections) if detections else _nothing(COCO(), truth.dataset)
        judge = COCOeval(truth, found, kind)
        judge.params.maxDets = sorted(max_dets)
        if thresholds is not None:
            judge.params.iouThrs = np.array(thresholds, dtype=np.float64)
        judge.evaluate()
        judge.accumulate()
    return Scores(judge.eval["precision"], judge.eval["recall"], judge.params.iouThrs)


def _nothing(empty: Any, dataset: dict[str, Any]) -> Any:
    """A result without detections, which ``loadRes`` refuses."""
    empty.dataset = {**dataset, "annotations": []}
    empty.createIndex()
    return empty


def _mean(values: np.ndarray) -> float | None:
    present = values[values > -1]
    return float(np.mean(present)) if present.size else None
