"""All pictures of one run: drawn from what is there, with a sentence for each that cannot be."""

from __future__ import annotations

import io
import math
import tarfile
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Any

from PIL import Image, ImageOps

from polaformer.errors import UserError
from polaformer.visualization.class_bars import draw_classes
from polaformer.visualization.confusion import draw_confusion
from polaformer.visualization.curves import draw_curves
from polaformer.visualization.draw import Prediction, draw_predictions
from polaformer.visualization.figure import save_image
from polaformer.visualization.results import RunResults, finite
from polaformer.zip_names import zip_member_name

GRID_IMAGES = 32
OVERVIEW_WIDTH = 1300


def draw_pictures(results: RunResults) -> tuple[dict[str, Path], list[str]]:
    """Write curves.png, what else fits the task of the run, and overview.png into its folder.

    Classifiers of images get predictions.png and confusion.png, other tasks classes.png, and
    confusion.png where pixels are classified; their predictions are in the pictures that the run
    itself has drawn. Returns the paths by name, and one sentence for each picture that could not be
    drawn. A picture left from an earlier call that cannot be drawn any more is removed, so none is
    out of date.
    """
    drawn: dict[str, Path] = {}
    problems: list[str] = []
    parts = [("predictions", _predictions), ("curves", _curves), ("confusion", _confusion)]
    if not results.classifies:
        shown = parts[2:] if "confusion" in results.metrics else []
        parts = [("curves", _curves), *shown, ("classes", _classes)]
    for name, draw in parts:
        out = results.work_dir / f"{name}.png"
        try:
            drawn[name] = draw(results, out)
        except UserError as error:
            out.unlink(missing_ok=True)
            problems.append(f"no picture '{name}': {error}")
    if not results.classifies and results.sample_pictures:
        drawn["predictions"] = results.sample_pictures[0][1]
    if len(drawn) > 1:
        drawn["overview"] = _overview(drawn, results.work_dir / "overview.png")
    return drawn, problems


def choose_predictions(
    rows: Sequence[Mapping[str, Any]], limit: int = GRID_IMAGES
) -> list[Mapping[str, Any]]:
    """At most ``limit`` predictions: wrong ones first, the most confident of them leading.

    Wrong ones fill at most half of the places if there are enough right ones. The right ones are
    spread evenly over the classes and over the data set. Deterministic.
    """
    wrong = [row for row in rows if row.get("label") not in (None, row.get("prediction"))]
    right = [row for row in rows if row.get("label") in (None, row.get("prediction"))]
    wrong.sort(key=lambda row: -(finite(row.get("score")) or 0.0))
    room = max(limit // 2, limit - len(right))
    chosen = wrong[:room]
    return chosen + _spread(right, limit - len(chosen))


def _spread(rows: Sequence[Mapping[str, Any]], limit: int) -> list[Mapping[str, Any]]:
    by_class: dict[str, list[Mapping[str, Any]]] = {}
    for row in rows:
        by_class.setdefault(str(row.get("prediction")), []).append(row)
    each = max(1, math.ceil(limit / max(1, len(by_class))))
    columns = []
    for key in sorted(by_class, key=_natural):
        group = by_class[key]
        step = max(1, len(group) // each)
        columns.append(group[::step])
    turns = (row for turn in zip_longest(*columns) for row in turn if row is not None)
    return [row for row, _ in zip(turns, range(limit), strict=False)]


def _natural(key: str) -> tuple[int, str]:
    return (int(key), "") if key.isdecimal() else (1 << 30, key)


def _predictions(results: RunResults, out: Path) -> Path:
    rows = results.predictions
    if not rows:
        raise UserError("single predictions (predictions.json) are missing")
    items = list(_open_images(choose_predictions(rows), results))
    if not items:
        raise UserError("none of the predicted images can be opened; were the data moved?")
    labelled = [row for row in rows if row.get("label") is not None]
    wrong = sum(row.get("label") != row.get("prediction") for row in labelled)
    shown = sum(item.correct is False for item in items)
    title = f"{len(items)} of {len(rows)} test images"
    if labelled:
        some = f"all {wrong}" if shown == wrong else f"{shown} of {wrong}"
        title += f", {some} wrong ones first" if wrong else f"; none of the {len(rows)} is wrong"
    return draw_predictions(items, out, title=title)


def _open_images(rows: Sequence[Mapping[str, Any]], results: RunResults) -> Iterator[Prediction]:
    archives: dict[Path, zipfile.ZipFile | tarfile.TarFile] = {}
    try:
        for row in rows:
            image = _open_image(str(row.get("path", "")), results.work_dir, archives)
            if image is None:
                continue
            label = row.get("label")
            yield Prediction(
                image,
                _class_name(row.get("prediction"), results.classes),
                None if label is None else _class_name(label, results.classes),
                finite(row.get("score")),
            )
    finally:
        for archive in archives.values():
            archive.close()


def _open_image(
    path: str,
    work_dir: Path,
    archives: dict[Path, zipfile.ZipFile | tarfile.TarFile],
    longest: int = 256,
) -> Image.Image | None:
    """The image at ``path``, a file or ARCHIVE/MEMBER, as small RGB; None if it cannot be read."""
    for place in (Path(path), work_dir / path):
        try:
            with Image.open(io.BytesIO(_read_file(place, archives))) as image:
                small = ImageOps.exif_transpose(image).convert("RGB")
        except (OSError, ValueError, SyntaxError, KeyError, EOFError, Image.DecompressionBombError):
            continue
        small.thumbnail((longest, longest))
        return small
    return None


def _read_file(place: Path, archives: dict[Path, zipfile.ZipFile | tarfile.TarFile]) -> bytes:
    if place.is_file():
        return place.read_bytes()
    archive = next((p for p in place.parents if p.suffix in (".zip", ".tar") and p.is_file()), None)
    if archive is None:
        raise FileNotFoundError(place)
    if archive not in archives:
        try:
            opened = _open_archive(archive)
        except (zipfile.BadZipFile, tarfile.TarError) as error:
            raise OSError(f"{archive}: {error}") from error
        archives[archive] = opened
    member = place.relative_to(archive).as_posix()
    opened = archives[archive]
    if isinstance(opened, zipfile.ZipFile):
        return opened.read(_zip_member(opened, member))
    file = opened.extractfile(member)
    if file is None:
        raise FileNotFoundError(place)
    return file.read()


def _zip_member(archive: zipfile.ZipFile, name: str) -> zipfile.ZipInfo:
    """The member that the data set knows as ``name``; raises KeyError if there is none."""
    if name in archive.NameToInfo:
        return archive.NameToInfo[name]
    return {zip_member_name(member): member for member in archive.infolist()}[name]


def _open_archive(path: Path) -> zipfile.ZipFile | tarfile.TarFile:
    if path.suffix == ".zip":
        return zipfile.ZipFile(path)
    return tarfile.open(path)


def _class_name(value: Any, classes: Sequence[str]) -> str:
    if isinstance(value, int) and 0 <= value < len(classes):
        return classes[value]
    return str(value)


def _curves(results: RunResults, out: Path) -> Path:
    return draw_curves(results.scalars, out, title=f"Training of {results.name}")


def _confusion(results: RunResults, out: Path) -> Path:
    matrix = results.metrics.get("confusion")
    if not matrix:
        raise UserError("the confusion matrix (metrics.json) is missing")
    count = finite(results.metrics.get("n", results.metrics.get("num_images")))
    title = "Confusion matrix" if count is None else f"Confusion matrix of {count:.0f} test images"
    unit = "pixels" if results.segments else "images"
    return draw_confusion(matrix, results.classes, out, title=title, unit=unit)


def _classes(results: RunResults, out: Path) -> Path:
    table = results.class_table
    if not table.rows:
        raise UserError("values per class (metrics.json) are missing")
    return draw_classes(table, out, title=f"Classes of {results.name}")


def _overview(drawn: Mapping[str, Path], out: Path) -> Path:
    """Predictions, confusion matrix beside them, curves below, small enough to send."""
    images = {name: Image.open(path).convert("RGB") for name, path in drawn.items()}
    tops = [images[name] for name in ("predictions", "confusion") if name in images]
    tops = tops or [images["classes"]]
    height = min(image.height for image in tops)
    top = [_scaled(image, height / image.height) for image in tops]
    width = sum(image.width for image in top)
    rows = [top]
    if "curves" in images:
        rows.append([_scaled(images["curves"], width / images["curves"].width)])
    page = Image.new("RGB", (width, sum(row[0].height for row in rows)), "white")
    y = 0
    for row in rows:
        x = 0
        for image in row:
            page.paste(image, (x, y))
            x += image.width
        y += row[0].height
    page = _scaled(page, min(1.0, OVERVIEW_WIDTH / width))
    return save_image(_with_palette(page), out)


def _with_palette(page: Image.Image) -> Image.Image:
    """``page`` in 256 colours, chosen from every 16th pixel: photographs have a million of them.

    Maximum coverage keeps colours that are rare but carry meaning, such as that of mistakes.
    """
    size = (max(1, page.width // 4), max(1, page.height // 4))
    sample = page.resize(size, Image.Resampling.NEAREST)
    palette = sample.quantize(256, Image.Quantize.MAXCOVERAGE, kmeans=2)
    return page.quantize(palette=palette, dither=Image.Dither.NONE)


def _scaled(image: Image.Image, factor: float) -> Image.Image:
    size = (max(1, round(image.width * factor)), max(1, round(image.height * factor)))
    return image.resize(size, Image.Resampling.LANCZOS)
