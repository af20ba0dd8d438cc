"""Pieces of a self-contained HTML page: everything shown is escaped, nothing is fetched."""

from __future__ import annotations

import base64
import io
from collections.abc import Iterable, Sequence
from html import escape
from pathlib import Path
from typing import Any

from PIL import Image

_LARGE_PICTURE = 600_000
_STYLE = """
:root { color-scheme: light dark; --ink: #1d2126; --soft: #5d6570; --paper: #ffffff;
  --card: #f4f6f8; --line: #d9dee4; --accent: #0072b2; --warn: #b34700; }
@media (prefers-color-scheme: dark) { :root { --ink: #e8eaed; --soft: #a4acb6; --paper: #15181c;
  --card: #1f242a; --line: #363d46; --accent: #6cb8e6; --warn: #f0a060; } }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 68rem; padding: 1.25rem; background: var(--paper);
  color: var(--ink); font: 1rem/1.5 system-ui, sans-serif; overflow-wrap: break-word; }
h1 { font-size: 1.5rem; line-height: 1.25; margin: 0.5rem 0; }
h2 { font-size: 1.15rem; margin: 2rem 0 0.6rem; }
p.headline { font-size: 1.9rem; line-height: 1.25; margin: 0.4rem 0; color: var(--accent); }
p.soft, figcaption { color: var(--soft); font-size: 0.92rem; }
figure { margin: 0 0 1.25rem; }
img { display: block; max-width: 100%; height: auto; background: #ffffff; border-radius: 6px;
  border: 1px solid var(--line); }
div.scroll { overflow-x: auto; }
table { border-collapse: collapse; font-size: 0.92rem; font-variant-numeric: tabular-nums; }
th, td { text-align: left; vertical-align: top; padding: 0.3rem 1rem 0.3rem 0;
  border-bottom: 1px solid var(--line); overflow-wrap: normal; }
td + td { overflow-wrap: anywhere; }
td.number, th.number { text-align: right; white-space: nowrap; }
ul.problems { border-left: 4px solid var(--warn); background: var(--card); margin: 0;
  padding: 0.6rem 0.8rem 0.6rem 1.8rem; }
pre { background: var(--card); padding: 0.7rem; border-radius: 6px; overflow-x: auto;
  font-size: 0.88rem; }
summary { cursor: pointer; }
""".strip()


def page(title: str, sections: Iterable[str]) -> str:
    """A whole HTML document of ``sections``, which are already HTML."""
    body = "\n".join(sections)
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>\n{_STYLE}\n</style>\n</head>\n"
        f"<body>\n{body}\n</body>\n</html>\n"
    )


def section(heading: str, *parts: str) -> str:
    """A heading with its parts, which are already HTML; empty if no part holds anything."""
    body = "\n".join(part for part in parts if part)
    return f"<section>\n<h2>{escape(heading)}</h2>\n{body}\n</section>" if body else ""


def paragraph(text: str, kind: str = "") -> str:
    """A paragraph of plain text."""
    return f"<p{f' class={kind!r}' if kind else ''}>{escape(text)}</p>"


def bullets(items: Sequence[str]) -> str:
    """A list of plain sentences, set apart as problems."""
    rows = "\n".join(f"<li>{escape(item)}</li>" for item in items)
    return f'<ul class="problems">\n{rows}\n</ul>' if items else ""


def table(header: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """A table of plain values; numbers stand at the right, None is an empty cell."""
    lines = [_row(row, "td") for row in rows]
    if not lines:
        return ""
    head = f"<thead>{_row(header, 'th')}</thead>\n" if any(header) else ""
    inner = "\n".join(lines)
    return f'<div class="scroll"><table>\n{head}<tbody>\n{inner}\n</tbody>\n</table></div>'


def folded(summary: str, html: str) -> str:
    """``html`` behind a line that opens it."""
    return f"<details>\n<summary>{escape(summary)}</summary>\n{html}\n</details>"


def picture(path: Path, alt: str, caption: str = "") -> str:
    """The PNG file at ``path`` inside the page, with ``alt`` for those who cannot see it.

    A large one, of many photographs, goes in as JPEG.
    """
    data, kind = path.read_bytes(), "png"
    if len(data) > _LARGE_PICTURE:
        data, kind = _as_jpeg(data), "jpeg"
    text = base64.b64encode(data).decode("ascii")
    below = f"\n<figcaption>{escape(caption)}</figcaption>" if caption else ""
    return (
        f'<figure>\n<img src="data:image/{kind};base64,{text}" alt="{escape(alt)}">{below}\n'
        "</figure>"
    )


def _as_jpeg(data: bytes) -> bytes:
    with Image.open(io.BytesIO(data)) as image:
        small = image.convert("RGB")
    small.thumbnail((1600, 4000))
    file = io.BytesIO()
    small.save(file, format="JPEG", quality=86)
    return file.getvalue()


def number(value: float | None, digits: int = 2) -> str:
    """``value`` with ``digits`` decimals, or a dash for what is not known."""
    return "–" if value is None else f"{value:.{digits}f}"


def _row(cells: Sequence[Any], tag: str) -> str:
    return "<tr>" + "".join(_cell(cell, tag) for cell in cells) + "</tr>"


def _cell(cell: Any, tag: str) -> str:
    text = "" if cell is None else str(cell)
    digits = "0" if text in ("–", "n/a") else text.replace(".", "", 1).lstrip("-")
    numeric = tag == "td" and digits.isdecimal()
    return f"<{tag}{' class=number' if numeric else ''}>{escape(text)}</{tag}>"
