"""What every metric here shares: the results of all processes, and files written whole."""

from __future__ import annotations

import json
import logging
import os
from abc import abstractmethod
from pathlib import Path
from typing import Any

from mmengine.dist import broadcast_object_list, gather_object, is_main_process
from mmengine.evaluator import BaseMetric
from mmengine.logging import print_log

from polaformer.errors import UserError


class SampleMetric(BaseMetric):
    """A metric over the samples of a data set, however many processes shared them.

    The processes may hold different numbers of results, and the same sample twice. The main
    process alone computes (``compute_metrics`` gets what all hold, repetitions included); the
    metrics, ``last`` and an error that ends the run reach every process.

    ``last`` is what ``metrics.json`` says beside the metrics, about the last evaluation; its entry
    ``size_key`` counts the samples. The test loop sets ``testing``: what is kept for
    ``write_results`` alone is needed only then.
    """

    size_key = "n"
    testing = False

    def __init__(self, collect_device: str = "cpu", prefix: str | None = None) -> None:
        super().__init__(collect_device=collect_device, prefix=prefix or "unused")
        # The base class warns about a missing prefix, but plain names are what we want here.
        self.prefix = prefix
        self.last: dict[str, Any] | None = None

    def evaluate(self, size: int) -> dict[str, float]:
        """Metrics over the results of all processes; ``size`` is the length of the data set."""
        parts = gather_object(list(self.results))
        self.results.clear()
        outcome: list[Any] = [None]
        failure: Exception | None = None
        if is_main_process():
            try:
                metrics = self.compute_metrics([entry for part in parts or () for entry in part])
                outcome = [(metrics, self.last, None)]
            except Exception as error:
                # The others would wait for ever; they get the message, this process its traceback.
                failure = error
                kind = UserError if isinstance(error, UserError) else RuntimeError
                outcome = [({}, None, kind(str(error) or type(error).__name__))]
        broadcast_object_list(outcome)
        metrics, self.last, told = outcome[0]
        if told is not None:
            raise failure or told
        self._compare_size(size)
        return {f"{self.prefix}/{k}": v for k, v in metrics.items()} if self.prefix else metrics

    def _compare_size(self, size: int) -> None:
        count = (self.last or {}).get(self.size_key, size)
        if count != size:
            text = f"{type(self).__name__} over {count} samples, but the data set has {size}"
            print_log(text, "current", level=logging.WARNING)

    @abstractmethod
    def write_results(self, folder: str | Path, dataset: Any) -> list[Path]:
        """Write the predictions of the last evaluation into ``folder``; returns the files.

        Call it in the main process, after ``evaluate``; ``dataset`` is what was evaluated.
        """


def write_json(path: Path, content: Any, indent: int | None = None) -> Path:
    """Write strict JSON whole or not at all; raises ValueError for numbers that are not finite."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    text = json.dumps(content, indent=indent, allow_nan=False)
    temporary.write_text(f"{text}\n", encoding="utf-8")
    os.replace(temporary, path)
    return path
