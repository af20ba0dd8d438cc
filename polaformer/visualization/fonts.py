"""Names in any script: fonts for what matplotlib's own font does not hold."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterable
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import IO, TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_LOG = logging.getLogger(__name__)
_LATIN_END = 0x250  # matplotlib's own font holds all of Latin
_ALL_BOXES = "Last Resort"  # a font that holds a box for every character


def save_png(figure: Figure, file: IO[bytes], dpi: int) -> None:
    """Write ``figure`` as PNG; characters no installed font holds are boxes, said once in the log.

    Ticks get their text when a figure is drawn, so one that needs further fonts is drawn twice.
    """
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing from", UserWarning)
        figure.savefig(file, format="png", dpi=dpi)
        if _add_fonts(figure):
            file.seek(0)
            file.truncate()
            figure.savefig(file, format="png", dpi=dpi)


def fonts_with(characters: Iterable[str]) -> tuple[list[str], set[str]]:
    """Names of installed fonts that hold ``characters``, and the characters that none holds."""
    from matplotlib.font_manager import fontManager, get_font

    left = set(characters)
    chosen: list[str] = []
    entries = sorted(fontManager.ttflist, key=lambda entry: abs(_weight(entry.weight) - 400))
    for entry in entries:
        if not left:
            break
        if entry.style != "normal" or entry.name in chosen or entry.name.startswith(_ALL_BOXES):
            continue
        try:
            font = get_font(entry.fname)
        except (OSError, RuntimeError):
            continue
        held = {c for c in left if ord(c) in font.get_charmap()} if font.scalable else set()
        if held:
            chosen.append(entry.name)
            left -= held
    return chosen, left


def font_runs(text: str) -> list[tuple[str, str]]:
    """``text`` in pieces of one font each, as (font file, piece), for drawing without a figure."""
    runs: list[tuple[str, str]] = []
    for character in text:
        file = _font_file(character)
        if runs and runs[-1][0] == file:
            runs[-1] = (file, runs[-1][1] + character)
        else:
            runs.append((file, character))
    return runs


@lru_cache(maxsize=4096)
def _font_file(character: str) -> str:
    """A font file that holds ``character``: that of matplotlib's own font where it does."""
    own = _own_font_file()
    if ord(character) < _LATIN_END or character == "…":
        return own
    from matplotlib.font_manager import FontProperties, findfont, get_font

    if character.isspace() or ord(character) in get_font(own).get_charmap():
        return own
    chosen, absent = fonts_with(character)
    if absent:
        _say_once()
        return own
    return str(findfont(FontProperties(family=chosen[0])))


@lru_cache(maxsize=1)
def _own_font_file() -> str:
    """The file of matplotlib's own font, without the second that importing matplotlib takes."""
    spec = find_spec("matplotlib")
    folder = Path(spec.origin).parent if spec is not None and spec.origin else Path()
    file = folder / "mpl-data" / "fonts" / "ttf" / "DejaVuSans.ttf"
    if file.is_file():
        return str(file)
    from matplotlib.font_manager import FontProperties, findfont

    return str(findfont(FontProperties()))


def _add_fonts(figure: Figure) -> bool:
    """Let the texts of ``figure`` use the fonts that they need beside their own, if there are."""
    from matplotlib.font_manager import FontProperties, findfont, get_font
    from matplotlib.text import Text

    texts = [text for text in figure.findobj(Text) if isinstance(text, Text)]
    used = {c for text in texts for c in text.get_text() if not c.isspace()}
    own = get_font(findfont(FontProperties())).get_charmap()
    strange = frozenset(c for c in used if ord(c) not in own)
    if not strange:
        return False
    chosen, absent = fonts_with(strange)
    if absent:
        _say_once()
    for text in texts:
        text.set_fontfamily([*FontProperties().get_family(), *chosen])
    return bool(chosen)


@lru_cache(maxsize=1)  # one message, however many pictures and names there are
def _say_once() -> None:
    _LOG.warning(
        "some names hold characters of no installed font; pictures show boxes for them (a font of "
        "that script, such as one of Noto, mends it)"
    )


def _weight(value: str | int) -> int:
    from matplotlib.font_manager import weight_dict

    return value if isinstance(value, int) else weight_dict.get(value, 400)
