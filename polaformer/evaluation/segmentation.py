"""Overlap of predicted and true class maps: IoU, accuracy and Dice, per class and on average."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from mmengine.logging import print_log

from polaformer.errors import UserError
from polaformer.evaluation.base import SampleMetric
from polaformer.evaluation.label_images import label_image, roots_of, safe_names, write_label_images
from polaformer.evaluation.segmentation_counts import Counted, count_pixels, maps_of
from polaformer.registry import METRICS

_MEANS = {"mIoU": "IoU", "mAcc": "Acc", "mDice": "Dice"}
FOLDER = "predictions"


@METRICS.register_module()
class SegmentationMetric(SampleMetric):
    """mIoU, mAcc, aAcc and mDice in percent over the pixels of all images, each counted once.

    Predictions are dicts with 'pred_sem_seg' and 'gt_sem_seg' (each with 'data' [1, H, W] of class
    numbers) and 'img_id' or 'img_path', as mmseg's models and ours give them. Truth must be in the
    numbers of the classes already; nothing is subtracted here. The pixels of all images go into one
    confusion matrix of whole numbers, so the result does not depend on how many processes shared
    the data set, to the last bit.

    Per class, with t true, p predicted and c correct pixels among those that are not ignored:
    IoU = c / (t + p - c), Acc = c / t, Dice = 2c / (t + p). A value without a denominator is n/a
    and in no mean: all three of a class that neither occurs nor is predicted; of one that is only
    predicted Acc alone, while its IoU and Dice are 0. aAcc is the share of correct pixels.

    Args:
        ignore_index: the value of true pixels that do not count.
        keep_predictions: keep every predicted map for ``write_results``, as a small PNG in memory
            (measured: 1.3 ms and 27 kB for a map of 512x683 with 60 regions); None: in tests,
            not while a training validates, which writes none.
        format_only: measure nothing, for images without truth; predictions are kept.

    Gives, not rounded, ``mIoU``, ``mAcc``, ``aAcc``, ``mDice``, and ``loss`` where the model notes
    a 'pixel_loss' (sum, pixels): the mean over pixels. What has no value is left out. ``last``
    holds 'num_images', 'num_pixels' (those that count), 'num_ignored', 'per_class' (name -> 'IoU',
    'Acc', 'Dice' in percent or None, 'truth' and 'predicted' in pixels) and 'confusion' (pixels;
    rows are true classes, columns predictions).
    """

    size_key = "num_images"

    def __init__(
        self,
        ignore_index: int = 255,
        keep_predictions: bool | None = None,
        format_only: bool = False,
        collect_device: str = "cpu",
        prefix: str | None = None,
    ) -> None:
        super().__init__(collect_device, prefix)
        if isinstance(ignore_index, bool) or not isinstance(ignore_index, int):
            raise UserError(
                f"SegmentationMetric.ignore_index={ignore_index!r} must be a whole number, such as "
                "255"
            )
        self.ignore_index = ignore_index
        self.keep_predictions = True if format_only else keep_predictions
        self.format_only = format_only
        self._found: list[Counted] = []
        self._told: set[str] = set()

    def process(self, data_batch: Any, data_samples: Sequence[Mapping[str, Any]]) -> None:
        """Count the pixels of every image of a batch."""
        names = self._names()
        keep = self.testing if self.keep_predictions is None else self.keep_predictions
        for sample in data_samples:
            predicted, truth = maps_of(sample, need_truth=not self.format_only)
            counted = count_pixels(sample, predicted, truth, len(names), self.ignore_index)
            if keep:
                palette = (self.dataset_meta or {}).get("palette")
                counted.picture = label_image(predicted, palette, len(names))
            self.results.append(counted)

    def compute_metrics(self, results: list) -> dict[str, float]:
        """Metrics over ``results``, the entries that ``process`` makes, repetitions included."""
        self._found = _once(results)
        if not self._found:
            raise UserError("no image was evaluated; is the validation set empty?")
        if self.format_only:
            self.last = {"num_images": len(self._found)}
            return {}
        names = self._names()
        confusion = _sum(self._found, len(names))
        per_class = _per_class(names, confusion)
        pixels = int(confusion.sum())
        self.last = {
            "num_images": len(self._found),
            "num_pixels": pixels,
            "num_ignored": sum(entry.ignored for entry in self._found),
            "per_class": per_class,
            "confusion": confusion.tolist(),
        }
        values: dict[str, float | None] = {
            name: _mean([row[key] for row in per_class.values()]) for name, key in _MEANS.items()
        }
        values["aAcc"] = _percent(int(confusion.trace()), pixels)
        self._tell(per_class, pixels)
        order = ("mIoU", "mAcc", "aAcc", "mDice")
        metrics = {name: value for name in order if (value := values[name]) is not None}
        loss = _mean_loss(self._found)
        return metrics if loss is None else {**metrics, "loss": loss}

    def write_results(self, folder: str | Path, dataset: Any) -> list[Path]:
        """Write ``predictions/<name>.png``: label images, whose pixels are class numbers.

        The name is an image's id, else its path below the image folder of ``dataset``, subfolders
        included, without suffix. Up to 256 classes they are palette images with the data set's
        colours, above that 16-bit gray ones. Label images of an earlier test are removed; nothing
        is written outside of the folder. Returns the folder.
        """
        pictures = [entry.picture for entry in self._found if entry.picture is not None]
        if not pictures:
            return []
        names = safe_names([(entry.key, entry.path) for entry in self._found], roots_of(dataset))
        target = Path(folder) / FOLDER
        write_label_images(target, zip(names, pictures, strict=True))
        return [target]

    def _names(self) -> tuple[str, ...]:
        """The names of the classes, each different."""
        classes = (self.dataset_meta or {}).get("classes")
        if not classes:
            raise UserError(
                "SegmentationMetric needs the classes of the data set (metainfo), but it has none"
            )
        if 0 <= self.ignore_index < len(classes):
            raise UserError(
                f"SegmentationMetric.ignore_index={self.ignore_index} is the number of a class: "
                f"the data set has {len(classes)}; choose another value, in the data set as well"
            )
        return _different([str(name) for name in classes])

    def _tell(self, per_class: Mapping[str, Mapping[str, Any]], pixels: int) -> None:
        """Say what is left out: all where no pixel counts, else the classes without a value."""
        if not pixels:
            text = f"all pixels of {len(self._found)} images are ignored ({self.ignore_index})"
            print_log(f"{text}: no IoU", "current", level=logging.WARNING)
            return
        absent = [name for name, row in per_class.items() if row["IoU"] is None]
        text = f"{len(absent)} of {len(per_class)} classes neither occur nor are predicted"
        if absent and text not in self._told:
            self._told.add(text)
            some = ", ".join(absent[:5])
            more = ", …" if len(absent) > 5 else ""
            print_log(f"{text}; they are in no mean: {some}{more}", "current")


def _different(names: Sequence[str]) -> tuple[str, ...]:
    """``names``, with its number behind a name that stood before."""
    seen: set[str] = set()
    different = []
    for number, name in enumerate(names):
        different.append(f"{name} ({number})" if name in seen else name)
        seen.add(name)
    return tuple(different)


def _once(results: Sequence[Counted]) -> list[Counted]:
    """The results without repeated images, in the order of their names.

    Images of the same id but of different files, as of a data set joined of several, are different.
    """
    by_key: dict[tuple[str, str], Counted] = {}
    for entry in results:
        by_key.setdefault((entry.key, entry.path), entry)
    return [by_key[key] for key in sorted(by_key)]


def _sum(found: Sequence[Counted], num_classes: int) -> np.ndarray:
    """The confusion matrix of all images: pixels [true class, predicted class]."""
    total = np.zeros(num_classes * num_classes, dtype=np.int64)
    for entry in found:
        total[entry.cells] += entry.counts
    return total.reshape(num_classes, num_classes)


def _per_class(names: Sequence[str], confusion: np.ndarray) -> dict[str, dict[str, Any]]:
    rows = zip(
        names,
        confusion.diagonal().tolist(),
        confusion.sum(axis=1).tolist(),
        confusion.sum(axis=0).tolist(),
        strict=True,
    )
    return {
        name: {
            "IoU": _percent(correct, truth + predicted - correct),
            "Acc": _percent(correct, truth),
            "Dice": _percent(2 * correct, truth + predicted),
            "truth": truth,
            "predicted": predicted,
        }
        for name, correct, truth, predicted in rows
    }


def _percent(part: int, whole: int) -> float | None:
    return 100.0 * part / whole if whole else None


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return math.fsum(known) / len(known) if known else None


def _mean_loss(found: Sequence[Counted]) -> float | None:
    """The mean over pixels of the losses that were noted; NaN where one of them is not finite."""
    losses = [entry.loss for entry in found if entry.loss is not None and entry.loss[1]]
    pixels = sum(count for _, count in losses)
    if not pixels:
        return None
    sums = [value for value, _ in losses]
    return math.fsum(sums) / pixels if all(map(math.isfinite, sums)) else math.nan
