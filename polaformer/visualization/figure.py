"""Colours and frame that all pictures share, and the writing of a picture to its file."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import IO, TYPE_CHECKING

from PIL import Image

from polaformer.visualization.fonts import save_png

if TYPE_CHECKING:
    from matplotlib.figure import Figure

RIGHT = "#0072B2"
WRONG = "#D55E00"
INK = "#222222"
SOFT = "#6B7078"


def short_name(name: str, limit: int = 18) -> str:
    """At most ``limit`` characters: the middle goes, as names often differ at their end."""
    if len(name) <= limit:
        return name
    tail = (limit - 1) // 3
    return f"{name[: limit - 1 - tail]}…{name[-tail:]}"


def set_title(figure: Figure, title: str) -> None:
    """Put ``title`` at the upper left, at the same distance from the edges in every picture."""
    width, height = figure.get_size_inches()
    figure.suptitle(title, x=0.15 / width, y=1 - 0.13 / height, ha="left", va="top", fontsize=12)


def new_figure(width: float, height: float) -> Figure:
    """An empty figure of ``width`` x ``height`` inches that no global state of pyplot knows."""
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), facecolor="white")


def save_figure(figure: Figure, out: str | Path, dpi: int = 120) -> Path:
    """Write ``figure`` to the PNG file ``out``, whole or not at all."""
    for axes in figure.get_axes():
        axes.spines[["top", "right"]].set_visible(bool(axes.images))
    return write_whole(out, lambda file: save_png(figure, file, dpi))


def save_image(image: Image.Image, out: str | Path) -> Path:
    """Write ``image`` to the PNG file ``out``, whole or not at all."""
    return write_whole(out, lambda file: image.save(file, format="PNG", optimize=True))


def write_whole(out: str | Path, write: Callable[[IO[bytes]], object]) -> Path:
    """Let ``write`` fill a temporary file beside ``out``, then move it there in one step."""
    path = Path(out)
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.stem}.", suffix=path.suffix)
    try:
        with os.fdopen(handle, "wb") as file:
            write(file)
        os.chmod(name, 0o644)
        os.replace(name, path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
    return path
