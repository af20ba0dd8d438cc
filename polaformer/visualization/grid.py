"""Grids of small pictures and text in them, with PIL alone: training waits for these pictures."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from PIL import Image, ImageDraw, ImageFont

from polaformer.visualization.figure import INK, write_whole
from polaformer.visualization.fonts import font_runs

GAP = 10
_HEAD = 44


def save_grid(
    cells: Sequence[Image.Image],
    out: str | Path,
    title: str,
    columns: int,
    foot: Image.Image | None = None,
) -> Path:
    """Write ``cells`` in rows of ``columns`` below ``title`` and above ``foot``, whole or not."""
    width = max(cell.width for cell in cells)
    rows = [cells[start : start + columns] for start in range(0, len(cells), columns)]
    heights = [max(cell.height for cell in row) for row in rows]
    below = 0 if foot is None else foot.height + GAP
    page = Image.new(
        "RGB",
        (grid_width(width, columns), _HEAD + sum(heights) + GAP * len(rows) + below),
        "white",
    )
    write_text(ImageDraw.Draw(page), (GAP, 12), title, 17, INK)
    y = _HEAD
    for row, height in zip(rows, heights, strict=True):
        for place, cell in enumerate(row):
            page.paste(cell, (GAP + place * (width + 2 * GAP), y))
        y += height + GAP
    if foot is not None:
        page.paste(foot, (GAP, y))
    # Training waits: the smallest file would take ten times as long.
    return write_whole(out, lambda file: page.save(file, format="PNG", compress_level=2))


def grid_width(cell_width: int, columns: int) -> int:
    """Width in pixels of a grid of cells of ``cell_width``."""
    return GAP + columns * (cell_width + 2 * GAP) - GAP


def write_text(
    draw: ImageDraw.ImageDraw, place: tuple[float, float], text: str, size: int, colour: str
) -> None:
    """``text`` from its upper left corner, in as many fonts as its characters need."""
    x, y = place
    baseline = y + round(0.95 * size)
    for file, run in font_runs(" ".join(text.split())):
        font = _font(file, size)
        draw.text((x, baseline), run, fill=colour, font=font, anchor="ls")
        x += font.getlength(run)


def text_width(text: str, size: int) -> float:
    """Width in pixels of ``text`` as ``write_text`` writes it."""
    return sum(_font(file, size).getlength(run) for file, run in font_runs(text))


@lru_cache(maxsize=64)
def _font(file: str, size: int) -> Any:
    # The other layout engine raises for characters that no script claims.
    return ImageFont.truetype(file, size, layout_engine=ImageFont.Layout.BASIC)
