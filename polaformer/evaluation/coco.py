"""Average precision of boxes and masks, as COCO defines it."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from mmengine.logging import print_log

from polaformer.errors import UserError, did_you_mean
from polaformer.evaluation.base import SampleMetric, write_json
from polaformer.evaluation.coco_detections import Detections, detections_of
from polaformer.evaluation.coco_scores import Scores, evaluate
from polaformer.evaluation.coco_truth import Truth, id_order, read_truth
from polaformer.registry import METRICS

KINDS = ("bbox", "segm")


@METRICS.register_module()
class CocoMetric(SampleMetric):
    """AP in 0..1 of detections against an annotation file, over the pictures that were seen.

    Computed by pycocotools, the reference that published figures come from; faster ones agree with
    it, but validating is a small part of a run and one compiled dependency is enough. Matching,
    crowd regions and size classes are pycocotools', which read from the file itself gives the same
    AP: objects whose box has no area, is smaller than a pixel or lies outside of its picture are
    not trained on, but count here as objects that were missed. Only what pycocotools cannot take or
    gets wrong is mended: numbers that are absent (an area, also where it is 0, is that of the mask
    or the box), annotation ids that are absent, doubled or 0, masks that cannot be drawn. Each
    picture counts once, and the result does not depend on how many processes shared the data set,
    to the last bit.

    Args:
        metric: 'bbox', 'segm' or both, the main one first.
        ann_file: the annotation file; by default that of the data set.
        classwise: put the figures of each class into ``last['per_class']``.
        max_dets: limits on the detections per picture and category; AP uses the largest one.
        iou_thrs: thresholds of overlap, by default 0.5, 0.55, …, 0.95.

    Gives, not rounded, ``bbox_mAP``, ``bbox_mAP_50``, ``bbox_mAP_75``, ``bbox_mAP_s``,
    ``bbox_mAP_m``, ``bbox_mAP_l`` and the same with ``segm_``; left out are those for which there
    is no object at all. ``last`` holds 'num_images', 'num_objects', 'num_unreachable' (those of
    these without an area or outside of their picture), 'num_crowds', 'non_finite' (pictures with
    detections that are not finite; these do not count), 'recall' (``bbox_AR_100``…) and
    'per_class': name -> 'images', 'objects', 'bbox_mAP', 'bbox_mAP_50'… (None without objects).
    """

    size_key = "num_images"

    def __init__(
        self,
        metric: str | Sequence[str] = ("bbox",),
        ann_file: str | None = None,
        classwise: bool = True,
        max_dets: Sequence[int] = (1, 10, 100),
        iou_thrs: Sequence[float] | None = None,
        collect_device: str = "cpu",
        prefix: str | None = None,
    ) -> None:
        super().__init__(collect_device, prefix)
        self.kinds = _kinds(metric)
        self.ann_file = ann_file
        self.classwise = classwise
        self.max_dets = _limits(max_dets)
        self.iou_thrs = _thresholds(iou_thrs)
        self._found: list[Detections] = []
        self._category_ids: tuple[Any, ...] = ()
        self._written_images: Mapping[Any, str] = {}
        self._told: set[str] = set()

    def process(self, data_batch: Any, data_samples: Sequence[Mapping[str, Any]]) -> None:
        """Note the detections of every picture of a batch; masks become run lengths at once."""
        with_masks = "segm" in self.kinds
        if len({tuple(sample.get("img_shape", ())) for sample in data_samples}) > 1:
            self._warn_once(
                "pictures of different sizes share a batch and are padded to one size, so that "
                "their detections, and AP, depend on the batch; batch_size=1 avoids that"
            )
        self.results.extend(detections_of(sample, with_masks) for sample in data_samples)

    def compute_metrics(self, results: list) -> dict[str, float]:
        """Metrics over ``results``, the entries that ``process`` makes, repetitions included."""
        found = _once(results)
        if not found:
            raise UserError("no picture was evaluated; is the validation set empty?")
        meta = self.dataset_meta or {}
        truth = read_truth(self._file(meta), meta, {entry.image_id: entry.size for entry in found})
        self._check_labels(found, len(truth.category_ids))
        self._remember(found, truth)
        self.last = {
            "num_images": len(found),
            "num_objects": sum(not entry["iscrowd"] for entry in truth.objects),
            "num_unreachable": truth.unreachable,
            "num_crowds": sum(bool(entry["iscrowd"]) for entry in truth.objects),
            "non_finite": sum(entry.non_finite > 0 for entry in found),
            "recall": {},
            "per_class": truth.counts() if self.classwise else {},
        }
        self._warn(found, truth)
        metrics: dict[str, float | None] = {}
        for kind in self.kinds:
            scores = self._scores(kind, found, truth)
            metrics |= {f"{kind}_{name}": value for name, value in scores.summary().items()}
            self._note(kind, scores, truth)
        self._say_once("left out, since no object is of this kind", metrics)
        return {name: value for name, value in metrics.items() if value is not None}

    def write_results(self, folder: str | Path, dataset: Any) -> list[Path]:
        """Write ``predictions.bbox.json`` and ``predictions.segm.json``, COCO's result format.

        Ids are written as in the annotation file, beside which pycocotools' ``loadRes`` reads them.
        """
        return [
            write_json(Path(folder) / f"predictions.{kind}.json", self._rows(kind))
            for kind in self.kinds
        ]

    def _remember(self, found: list[Detections], truth: Truth) -> None:
        """Keep what ``write_results`` needs."""
        self._found = found
        self._written_images = truth.written_ids.get("images", {})
        written = truth.written_ids.get("categories", {})
        self._category_ids = tuple(written.get(key, key) for key in truth.category_ids)

    def _rows(self, kind: str) -> list[dict[str, Any]]:
        """The result file's entries."""
        rows = []
        for entry in self._found:
            key = self._written_images.get(entry.image_id, entry.image_id)
            rows += entry.rows(kind, key, self._category_ids)
        if kind == "segm":
            for row in rows:
                row["segmentation"] = _as_text(row["segmentation"])
        return rows

    def _scores(self, kind: str, found: list[Detections], truth: Truth) -> Scores:
        objects = [dict(entry) for entry in truth.objects]
        if kind == "segm":
            objects, without = truth.for_masks()
            if without:
                text = f"{without} of {len(objects)} objects have no usable mask and do not count"
                print_log(f"segm: {text}", "current", level=logging.WARNING)
        rows: list[dict[str, Any]] = []
        for number, entry in enumerate(found, start=1):
            rows += entry.rows(kind, number, truth.numbers)
        count = len(truth.numbers)
        return evaluate(truth.images, count, objects, rows, kind, self.max_dets, self.iou_thrs)

    def _note(self, kind: str, scores: Scores, truth: Truth) -> None:
        """Put recalls and the figures of each class into ``last``."""
        if self.last is None:
            return
        for position, limit in enumerate(self.max_dets):
            self.last["recall"][f"{kind}_AR_{limit}"] = scores.recall_at(position)
        if not self.classwise:
            return
        for name, number in zip(truth.names, truth.numbers, strict=True):
            row = self.last["per_class"][name]
            row[f"{kind}_mAP"] = scores.ap(category=number)
            row[f"{kind}_mAP_50"] = scores.ap(0.5, category=number)

    def _file(self, meta: Mapping[str, Any]) -> str:
        path = self.ann_file or meta.get("ann_file")
        if not path:
            raise UserError(
                "CocoMetric knows no annotation file: the data set names none; set "
                "val_evaluator.ann_file"
            )
        return str(path)

    def _check_labels(self, found: list[Detections], count: int) -> None:
        highest = max((int(entry.labels.max()) for entry in found if len(entry.labels)), default=0)
        if highest >= count:
            raise UserError(
                f"the model predicts class number {highest}, but the data set has {count} "
                "classes; the head's num_classes must be the number of classes of the data set"
            )

    def _warn(self, found: list[Detections], truth: Truth) -> None:
        if truth.unreachable:
            self._warn_once(
                f"{truth.path}: {truth.unreachable} of {len(truth.objects)} objects have a box "
                "without area or outside of the picture; nothing can find it, but it counts, as in "
                "pycocotools"
            )
        texts = []
        if not any(not entry["iscrowd"] for entry in truth.objects):
            texts.append(f"{truth.path} has no object in the {len(found)} pictures: no AP")
        elif not any(len(entry.labels) for entry in found):
            texts.append(f"not one detection in {len(found)} pictures: AP is 0")
        broken = [entry for entry in found if entry.non_finite]
        if broken:
            count = sum(entry.non_finite for entry in broken)
            some = ", ".join(str(entry.image_id) for entry in broken[:5])
            texts.append(
                f"{count} detections are not finite and do not count (in {len(broken)} of "
                f"{len(found)} pictures: {some}{', …' if len(broken) > 5 else ''})"
            )
        for text in texts:
            print_log(text, "current", level=logging.WARNING)

    def _warn_once(self, text: str) -> None:
        if text not in self._told:
            self._told.add(text)
            print_log(text, "current", level=logging.WARNING)

    def _say_once(self, text: str, metrics: Mapping[str, float | None]) -> None:
        names = [name for name, value in metrics.items() if value is None]
        told = ", ".join(names)
        if names and told not in self._told:
            self._told.add(told)
            print_log(f"{told} {text}", "current")


def _once(results: Sequence[Detections]) -> list[Detections]:
    """The results without repeated pictures, in the order of the ids.

    Raises:
        UserError: two pictures have one id, as in a data set joined of several.
    """
    by_id: dict[Any, Detections] = {}
    for entry in results:
        first = by_id.setdefault(entry.image_id, entry)
        if (first.path, first.size) != (entry.path, entry.size):
            raise UserError(
                f"two pictures have the id {entry.image_id!r}: {first.path} and {entry.path}; a "
                "data set joined of several (ConcatDataset) is judged by one annotation file, so "
                "validate each by itself, or join their files under ids of their own"
            )
    return [by_id[number] for number in sorted(by_id, key=id_order)]


def _as_text(mask: Mapping[str, Any]) -> dict[str, Any]:
    counts = mask["counts"]
    text = counts.decode("ascii") if isinstance(counts, bytes) else counts
    return {"size": [int(side) for side in mask["size"]], "counts": text}


def _kinds(metric: str | Sequence[str]) -> tuple[str, ...]:
    kinds = (metric,) if isinstance(metric, str) else tuple(metric)
    for kind in kinds:
        if kind not in KINDS:
            hint = did_you_mean(str(kind), KINDS)
            raise UserError(f"CocoMetric.metric={kind!r}; allowed: 'bbox', 'segm'. {hint}".rstrip())
    if not kinds:
        raise UserError("CocoMetric.metric is empty; allowed: 'bbox', 'segm' or both")
    return tuple(dict.fromkeys(kinds))


def _limits(max_dets: Sequence[int]) -> tuple[int, ...]:
    limits = tuple(max_dets) if isinstance(max_dets, Sequence) else ()
    if not limits or not all(isinstance(limit, int) and limit > 0 for limit in limits):
        raise UserError(f"CocoMetric.max_dets={max_dets}: whole numbers >= 1 such as (1, 10, 100)")
    return tuple(sorted(set(limits)))


def _thresholds(iou_thrs: Sequence[float] | None) -> tuple[float, ...] | None:
    if iou_thrs is None:
        return None
    values = tuple(iou_thrs) if isinstance(iou_thrs, Sequence) else ()
    if not values or not all(isinstance(v, (int, float)) and 0 < v <= 1 for v in values):
        raise UserError(f"CocoMetric.iou_thrs={iou_thrs}: numbers in (0, 1] such as (0.5, 0.75)")
    return tuple(sorted(set(values)))
