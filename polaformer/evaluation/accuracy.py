"""Top-k accuracy, accuracy per class, confusion matrix and validation loss."""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from mmengine.logging import print_log

from polaformer.errors import UserError
from polaformer.evaluation.base import SampleMetric, write_json
from polaformer.registry import METRICS

_NO_PREDICTION = -1


@dataclass(slots=True)
class _Seen:
    """What one sample leaves behind: a few numbers, not its scores."""

    index: int | None
    label: int
    prediction: int
    rank: int
    score: float | None
    loss: float | None
    num_classes: int


@METRICS.register_module()
class Accuracy(SampleMetric):
    """Accuracy in percent over the samples of a data set, each counted once.

    Predictions are dicts with 'scores' [K] and, where known, 'label', 'index' and 'loss'; a
    missing label is taken from the batch's 'labels'. A sample that several processes saw because
    the last batch was filled up counts once, by its index. A sample whose scores are not finite
    counts as wrong.

    Gives ``top<k>`` for every k of ``topk`` up to the number of classes, ``mean_class`` (mean of
    the accuracies of the classes that occur) and ``loss`` (mean over samples) where the model
    gives one. ``last`` then holds 'n', 'per_class' (name -> percent, None where the class does
    not occur), 'support' (name -> samples), 'confusion' (rows are true classes, columns
    predictions), 'non_finite' and 'predictions' (one dict a sample: 'index', 'label', 'prediction',
    'score'; the last two None where the scores are not finite).
    """

    def __init__(
        self,
        topk: int | Sequence[int] = (1, 5),
        collect_device: str = "cpu",
        prefix: str | None = None,
    ) -> None:
        super().__init__(collect_device, prefix)
        ks = (topk,) if isinstance(topk, int) else tuple(topk)
        if not ks or not all(isinstance(k, int) and k > 0 for k in ks):
            raise UserError(f"topk={topk} must be positive whole numbers such as (1, 5)")
        self.topk = tuple(sorted(set(ks)))
        self._told = False

    def process(self, data_batch: Any, data_samples: Sequence[dict]) -> None:
        """Note label, prediction and loss of every sample of a batch."""
        for position, sample in enumerate(data_samples):
            label = sample.get("label")
            if label is None:
                label = _label_from(data_batch, position)
            loss = sample.get("loss")
            index = sample.get("index")
            scores = torch.as_tensor(sample["scores"]).detach().float().flatten()
            prediction, rank = _rank(scores, int(label))
            broken = prediction == _NO_PREDICTION
            self.results.append(
                _Seen(
                    None if index is None else int(index),
                    int(label),
                    prediction,
                    rank,
                    None if broken else float(scores[prediction]),
                    None if loss is None else float(loss),
                    len(scores),
                )
            )

    def compute_metrics(self, results: list) -> dict[str, float]:
        """Metrics over ``results``, the entries that ``process`` makes, duplicates included."""
        seen = _once(results)
        if not seen:
            raise UserError("no sample was evaluated; is the validation set empty?")
        names = self._names(seen)
        labels = np.array([entry.label for entry in seen])
        predictions = np.array([entry.prediction for entry in seen])
        ranks = np.array([entry.rank for entry in seen])
        metrics = {f"top{k}": 100.0 * float(np.mean(ranks < k)) for k in self._usable(len(names))}
        support = np.bincount(labels, minlength=len(names))
        hits = np.bincount(labels[ranks == 0], minlength=len(names))
        per_class = {
            name: 100.0 * int(hit) / int(n) if n else None
            for name, hit, n in zip(names, hits, support, strict=True)
        }
        present = [value for value in per_class.values() if value is not None]
        metrics["mean_class"] = float(np.mean(present))
        losses = [entry.loss for entry in seen if entry.loss is not None]
        if losses:
            metrics["loss"] = (
                math.fsum(losses) / len(losses) if all(map(math.isfinite, losses)) else math.nan
            )
        self.last = {
            "n": len(seen),
            "per_class": per_class,
            "support": dict(zip(names, support.tolist(), strict=True)),
            "confusion": _confusion(labels, predictions, len(names)).tolist(),
            "non_finite": self._non_finite(seen),
            "predictions": [_row(entry) for entry in seen],
        }
        return metrics

    def write_results(self, folder: str | Path, dataset: Any) -> list[Path]:
        """Write ``predictions.json``: a row a sample, as in ``last``, with 'path' where known."""
        samples = getattr(getattr(dataset, "dataset", dataset), "samples", None)
        rows = [dict(row) for row in (self.last or {}).get("predictions", [])]
        for row in rows:
            if samples is not None and row["index"] is not None:
                row["path"] = str(Path(samples[row["index"]][0]).absolute())
        return [write_json(Path(folder) / "predictions.json", rows, indent=2)]

    def _names(self, seen: list[_Seen]) -> tuple[str, ...]:
        """A name for every class that the data set or the model has."""
        named = tuple(map(str, (self.dataset_meta or {}).get("classes", ())))
        count = max(len(named), max(entry.num_classes for entry in seen))
        return named + tuple(f"class {i}" for i in range(len(named), count))

    def _usable(self, num_classes: int) -> list[int]:
        left_out = [k for k in self.topk if k > num_classes]
        if left_out and not self._told:
            self._told = True
            told = ", ".join(f"top{k}" for k in left_out)
            print_log(f"{told} left out: there are only {num_classes} classes", "current")
        return [k for k in self.topk if k <= num_classes]

    def _non_finite(self, seen: list[_Seen]) -> int:
        broken = [entry for entry in seen if entry.prediction == _NO_PREDICTION]
        if broken:
            where = ", ".join(str(entry.index) for entry in broken[:5])
            print_log(
                f"{len(broken)} of {len(seen)} samples have scores that are not finite and count "
                f"as wrong (indices {where}{', …' if len(broken) > 5 else ''})",
                "current",
                level=logging.WARNING,
            )
        return len(broken)


def _rank(scores: torch.Tensor, label: int) -> tuple[int, int]:
    """The best class (the first of equals), and how many classes stand before the true one."""
    if not 0 <= label < len(scores):
        raise UserError(
            f"a sample has class number {label}, but the model gives {len(scores)} scores; the "
            "head's num_classes must be the number of classes of the data set"
        )
    if not bool(torch.isfinite(scores).all()):
        return _NO_PREDICTION, len(scores)
    own = scores[label]
    rank = int((scores > own).sum()) + int((scores[:label] == own).sum())
    return (label if rank == 0 else int(scores.argmax())), rank


def _label_from(data_batch: Any, position: int) -> int:
    labels = data_batch.get("labels") if isinstance(data_batch, dict) else None
    if labels is None:
        raise UserError("accuracy needs labels, but neither the predictions nor the batch have any")
    return int(labels[position])


def _once(results: list) -> list[_Seen]:
    """The results without repeated indices, in the order of the indices."""
    by_index: dict[int, _Seen] = {}
    unnamed = []
    for entry in results:
        if entry.index is None:
            unnamed.append(entry)
        else:
            by_index.setdefault(entry.index, entry)
    return [by_index[index] for index in sorted(by_index)] + unnamed


def _row(entry: _Seen) -> dict[str, Any]:
    prediction = None if entry.prediction == _NO_PREDICTION else entry.prediction
    return {
        "index": entry.index,
        "label": entry.label,
        "prediction": prediction,
        "score": entry.score,
    }


def _confusion(labels: np.ndarray, predictions: np.ndarray, num_classes: int) -> np.ndarray:
    """Counts [true class, predicted class]; samples without a prediction are in no cell."""
    valid = predictions != _NO_PREDICTION
    cells = labels[valid] * num_classes + predictions[valid]
    counts = np.bincount(cells, minlength=num_classes * num_classes)
    return counts.reshape(num_classes, num_classes)
