"""One HTML page about one run: what ran, how well, its pictures and its problems."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from polaformer.errors import UserError
from polaformer.visualization.confusion import top_confusions
from polaformer.visualization.figure import write_whole
from polaformer.visualization.measures import (
    long_name,
    number_text,
    with_unit,
)
from polaformer.visualization.page import (
    bullets,
    folded,
    page,
    paragraph,
    picture,
    section,
    table,
)
from polaformer.visualization.pictures import draw_pictures
from polaformer.visualization.report_tables import (
    FOLD_ABOVE,
    as_mapping,
    classes_section,
    epochs_section,
)
from polaformer.visualization.results import (
    RunResults,
    find_scalars,
    finite,
    load_results,
    split_scalars,
    train_step,
    val_epoch,
)

_LEFT_BY_A_RUN = ("run_card.json", "scalars.json", "config.py", "metrics.json")
_EARLIER_TEST = (
    "the test result is older than this run and belongs to an earlier one in the same folder, as "
    "do its predictions and what it says of the classes; test again with tools/test.py"
)
_SHOWN_OF_CARD = (
    "command",
    "config",
    "status",
    "started",
    "ended",
    "device",
    "seed",
    "git",
    "data",
)


def write_report(work_dir: str | Path) -> Path:
    """Draw the pictures of ``work_dir`` and write ``report.html`` beside them; returns its path.

    The page embeds its pictures and fetches nothing. What a run that goes on or broke has not left
    is listed on the page. Raises UserError if ``work_dir`` is no work directory, or is read-only.
    """
    results = load_results(work_dir)
    _check_is_work_folder(results.work_dir)
    try:
        return _write(results)
    except OSError as error:
        raise UserError(
            f"cannot write the report into {results.work_dir}: {error.strerror or error}"
        ) from error


def _check_is_work_folder(root: Path) -> None:
    if find_scalars(root) is None and not any((root / name).is_file() for name in _LEFT_BY_A_RUN):
        raise UserError(
            f"'{root}' is no work folder: it holds none of {', '.join(_LEFT_BY_A_RUN)}, which "
            "tools/train.py and tools/test.py write"
        )


def _write(results: RunResults) -> Path:
    pictures, undrawn = draw_pictures(results)
    html = page(
        f"{results.name}: report",
        [
            *_head(results),
            _problems(results, undrawn),
            _results(results),
            *_pictures(results, pictures),
            epochs_section(results),
            classes_section(results),
            _mistakes(results),
            _run_card(results),
        ],
    )
    return write_whole(
        results.work_dir / "report.html", lambda file: file.write(html.encode("utf-8"))
    )


def _head(results: RunResults) -> Iterator[str]:
    yield f"<header><h1>{escape(results.name)}</h1>"
    yield paragraph(_headline(results), "headline")
    yield paragraph(str(results.work_dir), "soft")
    yield "</header>"


def _headline(results: RunResults) -> str:
    key = results.main
    if results.tested_before or key is None or key not in results.measured:
        validated = _best_validation(results)
        if results.tested_before:
            return validated or "No result of this run yet"
        return "; ".join([_without_result(results), *([validated] if validated else [])])
    count = _tested_images(results)
    text = with_unit(key, results.score)
    form = " with test-time augmentation" if results.metrics.get("tta") else ""
    return text if count is None else f"{text} on {count:.0f} test images{form}"


def _best_validation(results: RunResults) -> str | None:
    """The best of the main measure in the validations of the run."""
    key = results.main
    if key is None:
        return None
    measured = [
        (value, val_epoch(record) or 0.0)
        for record in results.validations
        if (value := finite(record.get(key))) is not None
    ]
    if not measured:
        return None
    best, epoch = max(measured, key=lambda result: result[0])
    return f"{with_unit(key, best)} in validation, {results.unit} {epoch:.0f}"


def _without_result(results: RunResults) -> str:
    """What is said where no test has measured anything: there was none, or nothing to find."""
    count = _tested_images(results)
    if results.measured or count is None:
        return "No test result yet"
    empty = ""
    if results.metrics.get("num_objects") == 0:
        empty = " without any object"
    elif results.metrics.get("num_pixels") == 0:
        empty = " without a pixel that counts"
    return f"Tested on {count:.0f} images{empty}: nothing to measure"


def _tested_images(results: RunResults) -> float | None:
    return finite(results.metrics.get("n", results.metrics.get("num_images")))


def _problems(results: RunResults, undrawn: Sequence[str]) -> str:
    steps = non_finite_steps(results.scalars)
    found = [f"the training loss was not finite at {len(steps)} logged steps: {_first(steps)}"]
    bad = finite(results.metrics.get("non_finite"))
    parts = [
        *([_EARLIER_TEST] if results.tested_before else []),
        *unfinished(results.card),
        *(found if steps else []),
        *skipped_files(results.card),
        *([f"{bad:.0f} test images have scores that are not finite"] if bad else []),
        *results.log_problems,
        *(f"missing: {text}" for text in results.missing),
        *undrawn,
    ]
    if not parts:
        return section("Problems", paragraph("None found in run card, scalars and log.", "soft"))
    listed = bullets(parts)
    return section(
        "Problems", listed if len(parts) <= FOLD_ABOVE else folded(f"{len(parts)} entries", listed)
    )


def unfinished(card: Mapping[str, Any]) -> list[str]:
    """One sentence if the run card says that the run goes on, was interrupted or failed."""
    status = card.get("status")
    if status in (None, "finished"):
        return []
    starts = card.get("starts")
    last = starts[-1] if isinstance(starts, list) and starts else {}
    reason = as_mapping(last).get("reason")
    return [f"training has not finished: {status}" + (f" ({reason})" if reason else "")]


def non_finite_steps(scalars: Iterable[Mapping[str, Any]]) -> list[int]:
    """Logged training steps whose loss is there but is not a finite number."""
    train, _ = split_scalars(scalars)
    return [
        int(train_step(record) or 0)
        for record in train
        if "loss" in record and finite(record["loss"]) is None
    ]


def skipped_files(card: Mapping[str, Any]) -> list[str]:
    """One sentence for each list of skipped files anywhere in the run card."""
    sentences = []
    for key, value in card.items():
        if isinstance(value, Mapping):
            sentences += skipped_files(value)
        elif "skipped" in str(key) and value:
            if isinstance(value, (list, tuple)):
                names = [_skipped_name(entry) for entry in value]
                sentences.append(f"{len(names)} files skipped: {_first(names)}")
            else:
                sentences.append(f"{key}: {value}")
    return sentences


def _skipped_name(entry: Any) -> str:
    if isinstance(entry, (list, tuple)) and len(entry) == 2:
        return f"{entry[0]} ({entry[1]})"
    return str(entry)


def _first(values: Sequence[Any], limit: int = 12) -> str:
    text = ", ".join(str(value) for value in values[:limit])
    return text if len(values) <= limit else f"{text} and {len(values) - limit} more"


def _results(results: RunResults) -> str:
    values = {**results.measured, **as_mapping(results.metrics.get("recall"))}
    named = [(long_name(key), number_text(key, value)) for key, value in values.items()]
    title = "Test result of an earlier run" if results.tested_before else "Test result"
    return section(title, table(("measure", "value"), named))


def _pictures(results: RunResults, pictures: Mapping[str, Path]) -> Iterator[str]:
    score = "unknown" if results.main is None else with_unit(results.main, results.score)
    if results.classifies:
        caption = "Grid of test images, each with predicted and true class."
    else:
        what = "classes of its pixels" if results.segments else "objects"
        caption = f"Grid of images, each with true and with predicted {what}."
    shown = (
        ("predictions", "Predictions", caption),
        ("curves", "Training curves", f"Loss, measures and learning rate over {results.unit}s."),
        ("confusion", "Confusion", f"Which class was taken for which; {score}."),
        ("classes", "Classes", "A bar for each class, the lowest first; a line at the mean."),
    )
    for name, heading, alt in shown:
        if name not in pictures:
            continue
        if name == "predictions" and not results.classifies:
            yield _sample_section(heading, alt, results.sample_pictures)
        else:
            yield section(heading, picture(pictures[name], alt))


def _sample_section(heading: str, alt: str, samples: Sequence[tuple[str, Path]]) -> str:
    """The newest picture of predictions; the first one of the run, to compare, is folded."""
    what, path = samples[0]
    parts = [picture(path, alt, f"after {_the(what)}")]
    if len(samples) > 1:
        what, path = samples[-1]
        parts.append(folded(f"the same after {_the(what)}", picture(path, alt)))
    return section(heading, *parts)


def _the(what: str) -> str:
    return "the test" if what == "test" else what


def _mistakes(results: RunResults) -> str:
    if not results.confusion:
        return ""
    names = results.classes
    rows = [
        (names[true], names[said], count, f"{100 * share:.1f}")
        for true, said, count, share in top_confusions(results.confusion)
    ]
    kind = "pixels" if results.segments else "images"
    header = ("true class", "taken for", kind, "share of the class (%)")
    return section("Most frequent mistakes", table(header, rows))


def _run_card(results: RunResults) -> str:
    rows = list(flatten(results.card))
    short = [(key, value) for key, value in rows if key.split(".")[0] in _SHOWN_OF_CARD]
    config = results.work_dir / "config.py"
    text = config.read_text(encoding="utf-8", errors="replace") if config.is_file() else ""
    return section(
        "What was run",
        table(("", ""), short),
        folded("the whole run card", table(("", ""), rows)) if rows else "",
        folded("the whole configuration", f"<pre>{escape(text)}</pre>") if text else "",
    )


def flatten(card: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    """(dotted key, value as text) for every leaf of nested dictionaries; long lists are cut."""
    for key, value in card.items():
        name = f"{prefix}{key}"
        if isinstance(value, Mapping):
            yield from flatten(value, f"{name}.")
        elif isinstance(value, list):
            yield from _flatten_list(name, value)
        else:
            yield name, "" if value is None else str(value)


def _flatten_list(name: str, values: list[Any]) -> Iterator[tuple[str, str]]:
    if not any(isinstance(value, Mapping) for value in values):
        yield name, _first(values)
        return
    for index, value in enumerate(values):
        if isinstance(value, Mapping):
            yield from flatten(value, f"{name}[{index}].")
        else:
            yield f"{name}[{index}]", str(value)
