"""What a run left in its work directory.

Missing or broken pieces are named and never fatal: a run may be going on, or have died.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from polaformer.errors import UserError
from polaformer.visualization.measures import (
    ClassTable,
    class_table,
    main_measure,
    measures_of,
    of_pixels,
    of_whole_images,
)

_PREDICTIONS = "predictions.*.json (single predictions)"
_LOG_LEVELS = (" - WARNING - ", " - ERROR - ", " - CRITICAL - ")


@dataclass(frozen=True)
class Series:
    """One curve: ``x`` in epochs or iterations, ``y`` as logged, NaN where it was not finite."""

    x: tuple[float, ...]
    y: tuple[float, ...]


@dataclass
class RunResults:
    """What pictures and page are made of; empty containers where a file is missing."""

    work_dir: Path
    card: dict[str, Any] = field(default_factory=dict)
    metrics: dict[str, Any] = field(default_factory=dict)
    predictions: list[dict[str, Any]] = field(default_factory=list)
    scalars: list[dict[str, Any]] = field(default_factory=list)
    tested: float | None = None  # when metrics.json was written, in seconds since 1970
    missing: list[str] = field(default_factory=list)
    log_problems: list[str] = field(default_factory=list)

    @property
    def name(self) -> str:
        """The name of the config that ran, or of the folder where no run card tells it."""
        config = self.card.get("config")
        return Path(config).stem if isinstance(config, str) else self.work_dir.resolve().name

    @property
    def classes(self) -> list[str]:
        """Class names as the test wrote them, or an empty list."""
        named = _as_list(self.metrics.get("classes")) or _as_dict(self.metrics.get("per_class"))
        return [str(name) for name in named]

    @cached_property
    def confusion(self) -> list[list[float]]:
        """Counts per true and predicted class, empty unless they are square and fit ``classes``."""
        try:
            counts = np.asarray(self.metrics.get("confusion"), dtype=np.float64)
        except (TypeError, ValueError):
            return []
        size = len(self.classes)
        fits = size > 0 and counts.shape == (size, size)
        return counts.tolist() if fits and bool((np.isfinite(counts) & (counts >= 0)).all()) else []

    @cached_property
    def class_table(self) -> ClassTable:
        """The values per class of the test, of whatever metric."""
        return class_table(self.metrics)

    @property
    def measured(self) -> dict[str, Any]:
        """The metrics of the test by name, empty without one."""
        return _as_dict(self.metrics.get("metrics"))

    @cached_property
    def validations(self) -> list[dict[str, Any]]:
        """The validation records of the run, in order."""
        return split_scalars(self.scalars)[1]

    @cached_property
    def main(self) -> str | None:
        """The measure that the run is judged by: the first of the test, or of the validations."""
        return main_measure(self.measured) or next(iter(measures_of(self.validations)), None)

    @property
    def score(self) -> float | None:
        """The main measure of the test, or None if no test has been written."""
        return finite(self.measured.get(self.main)) if self.main else None

    @property
    def classifies(self) -> bool:
        """Whether whole images are classified, as far as the results tell."""
        if self.predictions:
            return True
        per_class = _as_dict(self.metrics.get("per_class"))
        if self.result_files or any(isinstance(row, Mapping) for row in per_class.values()):
            return False
        if self.main is not None:
            return of_whole_images(self.main)
        return "n" in self.metrics or "num_images" not in self.metrics

    @property
    def segments(self) -> bool:
        """Whether pixels are classified, as far as the results tell."""
        return "num_pixels" in self.metrics or (self.main is not None and of_pixels(self.main))

    @cached_property
    def unit(self) -> str:
        """'epoch' or 'iteration': what the run is counted in."""
        return unit_of(self.scalars)

    @property
    def result_files(self) -> list[Path]:
        """Predictions in the form of their task: ``predictions.bbox.json``, label images."""
        folder = self.work_dir / "predictions"
        files = sorted(self.work_dir.glob("predictions.*.json"))
        return [*files, folder] if folder.is_dir() else files

    @cached_property
    def sample_pictures(self) -> list[tuple[str, Path]]:
        """(what, file) of pictures that the run has drawn: of its test, then of its last epochs."""
        return list(_sample_pictures(self))

    @property
    def tested_before(self) -> bool:
        """Whether the test is older than the run: it belongs to an earlier run in this folder."""
        started = started_at(self.card)
        return self.tested is not None and started is not None and self.tested < started


def _sample_pictures(results: RunResults) -> Iterator[tuple[str, Path]]:
    started = started_at(results.card) or 0.0
    files = {path.stem: path for path in (results.work_dir / "pictures").glob("*.png")}
    files = {name: path for name, path in files.items() if path.stat().st_mtime >= started}
    if "test" in files and results.metrics:
        yield "test", files["test"]
    steps = [(name.rpartition("_"), path) for name, path in files.items()]
    numbered = [(int(step), unit, path) for (unit, _, step), path in steps if step.isdecimal()]
    for step, unit, path in sorted(numbered, key=lambda entry: -entry[0]):
        yield f"{'iteration' if unit == 'iter' else unit} {step}", path


def started_at(card: Mapping[str, Any]) -> float | None:
    """When the run of this card started, in seconds since 1970; None if that is not known."""
    try:
        return datetime.strptime(str(card.get("started")), "%Y-%m-%d %H:%M:%S%z").timestamp()
    except ValueError:
        return None


def load_results(work_dir: str | Path) -> RunResults:
    """Read run card, scalars, metrics, predictions and log of one work directory.

    Raises UserError if ``work_dir`` is not a directory; all else that is missing or unreadable is
    named in ``missing``.
    """
    root = Path(work_dir)
    if not root.is_dir():
        raise UserError(
            f"'{root}' is not a folder: give a work directory, such as work_dirs/<config name>, "
            "that tools/train.py has written"
        )
    results = RunResults(root)
    results.card = _as_dict(_read_json(root / "run_card.json", "what was run", results.missing))
    results.metrics = _as_dict(
        _read_json(root / "metrics.json", "results of a test", results.missing)
    )
    if results.metrics:
        results.tested = (root / "metrics.json").stat().st_mtime
    scalars = find_scalars(root)
    if scalars is not None:
        results.scalars = read_scalars(scalars)
    _read_predictions(results)
    if scalars is None:
        results.missing.append("scalars.json (training curves): not written yet")
    elif not results.scalars:
        results.missing.append(f"{scalars.name} (training curves): holds no readable line")
    results.log_problems = read_log_problems(root)
    return results


def _read_predictions(results: RunResults) -> None:
    """Classes of single images; results of other tasks are large and left in their files."""
    path = results.work_dir / "predictions.json"
    if not path.is_file() and not results.classifies:
        if not results.result_files:
            files = "predictions/ (label images)" if results.segments else _PREDICTIONS
            results.missing.append(f"{files}: not written yet")
        return
    rows = _read_json(path, "single predictions", results.missing)
    if isinstance(rows, Mapping):
        rows = rows.get("predictions")
    results.predictions = [row for row in _as_list(rows) if isinstance(row, dict)]


def find_scalars(root: Path) -> Path | None:
    """``scalars.json`` of the work directory, or the newest one below it in mmengine's layout."""
    direct = root / "scalars.json"
    if direct.is_file():
        return direct
    nested = sorted(root.glob("*/vis_data/scalars.json"))
    return nested[-1] if nested else None


def read_scalars(path: str | Path) -> list[dict[str, Any]]:
    """One dictionary per readable line; a line cut off by a killed run is left out."""
    records = []
    for line in Path(path).read_text(encoding="utf-8", errors="replace").splitlines():
        try:
            record = json.loads(line)
        except ValueError:
            continue
        if isinstance(record, dict):
            records.append(record)
    return records


def split_scalars(
    records: Iterable[Mapping[str, Any]],
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """(training, validation) records, each sorted by step.

    A validation record holds an accuracy or a key under ``val/``, a training record a learning rate
    or an iteration. Prefixes are dropped. Of two records for the same step the later one counts:
    the run was resumed from before it.
    """
    train: dict[float, dict[str, Any]] = {}
    val: dict[float, dict[str, Any]] = {}
    for raw in records:
        record = {key.rsplit("/", 1)[-1]: value for key, value in raw.items()}
        measured = any(key.startswith("val/") for key in raw) or "top1" in record
        is_train = not measured and ("lr" in record or "iter" in record)
        step = train_step(record) if is_train else val_epoch(record)
        if step is not None:
            (train if is_train else val)[step] = record
    return [train[step] for step in sorted(train)], [val[step] for step in sorted(val)]


def train_step(record: Mapping[str, Any]) -> float | None:
    """Iterations done when a training record was written."""
    return finite(record.get("step", record.get("iter", record.get("epoch"))))


def val_epoch(record: Mapping[str, Any]) -> float | None:
    """The epoch of a validation record; where it has none, its step, in what the run counts."""
    return finite(record.get("epoch", record.get("step")))


def unit_of(records: Iterable[Mapping[str, Any]]) -> str:
    """'epoch', or 'iteration' for a run that has none."""
    train, val = split_scalars(records)
    if not (train or val):
        return "epoch"
    has_epochs = any(finite(record.get("epoch")) for record in (*train, *val))
    counted_by_step = bool(val) and not any("iter" in record for record in (*train, *val))
    return "epoch" if has_epochs or counted_by_step else "iteration"


def iterations_per_epoch(train: Sequence[Mapping[str, Any]]) -> float:
    """Iterations in one epoch, from the last iteration seen in each epoch; 1 if nothing tells."""
    ratios = [
        step / epoch
        for record in train
        if (step := train_step(record)) and (epoch := finite(record.get("epoch")))
    ]
    return max(ratios, default=1.0)


def train_series(train: Sequence[Mapping[str, Any]], key: str) -> Series | None:
    """The curve of ``key`` over (fractions of) epochs, or iterations where there are no epochs.

    None if no record holds it.
    """
    per_epoch = iterations_per_epoch(train)
    return _series(train, key, lambda record: (train_step(record) or 0.0) / per_epoch)


def val_series(val: Sequence[Mapping[str, Any]], key: str) -> Series | None:
    """The curve of ``key`` over epochs or iterations, or None if no record holds it."""
    return _series(val, key, lambda record: val_epoch(record) or 0.0)


def _series(
    records: Sequence[Mapping[str, Any]], key: str, place: Callable[[Mapping[str, Any]], float]
) -> Series | None:
    points = [(place(record), _number(record[key])) for record in records if key in record]
    if not points:
        return None
    x, y = zip(*points, strict=True)
    return Series(x, y)


def read_log_problems(root: Path, limit: int = 200) -> list[str]:
    """Warnings and errors of the text logs, oldest first, each once with its count."""
    counts: dict[str, int] = {}
    for path in sorted([*root.glob("*.log"), *root.glob("*/*.log")]):
        with path.open(encoding="utf-8", errors="replace") as lines:
            for line in lines:
                level = next((word for word in _LOG_LEVELS if word in line), None)
                if level is None:
                    continue
                text = line.split(level, 1)[1].strip()
                message = f"{level.strip(' -').lower()}: {text}"
                if message in counts or len(counts) < limit:
                    counts[message] = counts.get(message, 0) + 1
    return [text if n == 1 else f"{text} ({n} times)" for text, n in counts.items()]


def finite(value: Any) -> float | None:
    """``value`` as a float, or None where it is not a finite number."""
    number = _number(value)
    return number if math.isfinite(number) else None


def _number(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        return math.nan
    try:
        number = float(value)
    except ValueError:
        return math.nan
    return number if math.isfinite(number) else math.nan


def _read_json(path: Path, holds: str, missing: list[str]) -> Any:
    if not path.is_file():
        missing.append(f"{path.name} ({holds}): not written yet")
        return None
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, OSError) as error:
        missing.append(f"{path.name} ({holds}): unreadable, {error}")
        return None


def _as_dict(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _as_list(value: Any) -> list[Any]:
    return list(value) if isinstance(value, (list, tuple)) else []
