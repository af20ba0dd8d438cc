"""A text file with the colour, and maybe the name, of each class."""

from __future__ import annotations

import os
import re
from pathlib import Path

from polaformer.datasets.class_sets import Color
from polaformer.datasets.layout import check_class_names
from polaformer.errors import UserError

_FORM = "'red green blue' or 'red green blue name', each of 0..255 (or 'name red green blue')"


def read_label_colors(path: str) -> tuple[tuple[Color, ...], tuple[str, ...] | None]:
    """The colours in the order of the lines, and the names if every line has one.

    Blanks, tabs, commas or semicolons stand between the parts; lines that begin with '#' do not
    count. Raises UserError that names the line.
    """
    file = Path(os.path.expanduser(path))
    try:
        text = file.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise UserError(f"--label-colors: {file} is not UTF-8 text") from error
    except OSError as error:
        raise UserError(f"--label-colors: cannot read {file}: {error.strerror}") from error
    colors: list[Color] = []
    names: list[str] = []
    for number, line in enumerate(text.splitlines(), start=1):
        if line.strip() and not line.lstrip().startswith("#"):
            color, name = _parsed(file, number, line.strip())
            colors.append(color)
            names.append(name)
    if not colors:
        raise UserError(f"--label-colors: {file} has no line with a colour: {_FORM}")
    if not any(names):
        return tuple(colors), None
    if not all(names):
        at = names.index("") + 1
        raise UserError(f"--label-colors: {file}: colour {at} has no name, but others have one")
    return tuple(colors), check_class_names(names)


def _parsed(file: Path, number: int, line: str) -> tuple[Color, str]:
    parts = [part for part in re.split(r"[\s,;]+", line) if part]
    for color, name in ((parts[:3], parts[3:]), (parts[-3:], parts[:-3])):
        if len(color) == 3 and all(re.fullmatch(r"\d{1,3}", part) for part in color):
            red, green, blue = map(int, color)
            if max(red, green, blue) <= 255:
                return (red, green, blue), " ".join(name)
    raise UserError(f"--label-colors: {file}, line {number}: '{line}' is not {_FORM}")
