"""Folders of data that this program made: written whole or not at all, replaced only if its own."""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image

from polaformer.datasets.sources import is_hidden
from polaformer.errors import UserError


@dataclass(frozen=True)
class MadeFolder:
    """What marks a folder as made here: its card (a JSON file) and the names it may hold.

    ``own_name`` matches every file that the command writes, relative to ``target`` and with ``/``.
    """

    target: Path
    card_name: str
    own_name: re.Pattern[str]

    def bring(
        self,
        card: dict,
        difference: Callable[[], str | None],
        files: Callable[[], Iterable[tuple[str, bytes]]],
        force: bool,
    ) -> bool:
        """Have ``target`` hold ``files`` and ``card``; true if it already did.

        ``difference`` says what makes a folder that is there another one, None if nothing does. A
        folder that differs stops with UserError, unless it was made here and ``force`` is given.
        """
        target = self.target
        if target.is_dir() and any(target.iterdir()):
            found = self._other_card(card) or difference()
            if found is None:
                return True
            self._may_replace(card, found, force)
        elif target.exists() and not target.is_dir():
            raise UserError(f"{target} is a file; choose another folder with --out")
        try:
            self._write(card, files())
        except OSError as error:
            raise UserError(f"cannot write {target}: {error.strerror or error}") from error
        return False

    def names(self) -> set[str]:
        """All files below ``target``, hidden ones aside."""
        return {
            path.relative_to(self.target).as_posix()
            for path in self.target.rglob("*")
            if not path.is_dir() and not is_hidden(path.name)
        }

    def other_names(self, expected: Iterable[str]) -> str | None:
        """A sentence about files that are too many or too few, or None."""
        wanted, there = {self.card_name, *expected}, self.names()
        extra, missing = sorted(there - wanted), sorted(wanted - there)
        if extra:
            return f"it has other files, for example {extra[0]}"
        if missing:
            return f"{len(missing)} of its files are missing, for example {missing[0]}"
        return None

    def read_card(self) -> dict | None:
        """The content of the folder's card; None if there is none, or what is there is no card."""
        try:
            card = json.loads((self.target / self.card_name).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return None
        return card if isinstance(card, dict) else None

    def _other_card(self, card: dict) -> str | None:
        there = self.read_card()
        if there is None or there == card:
            return None
        odd = [key for key in card if there.get(key) != card[key]]
        return "; ".join(f"{key} is {there.get(key)}, asked for {card[key]}" for key in odd)

    def _may_replace(self, card: dict, difference: str, force: bool) -> None:
        there = self.read_card()
        ours = there is not None and there.get("source") == card["source"]
        names = sorted(self.names())
        foreign = [name for name in names if not self.own_name.fullmatch(name)]
        if not ours or foreign:
            example = f" (for example {(foreign or names)[0]})" if names else ""
            raise UserError(
                f"{self.target} holds other files{example} and is never overwritten; "
                "choose another folder with --out"
            )
        if not force:
            raise UserError(
                f"{self.target} was made by this command but is not what was asked for "
                f"({difference}); --force replaces it, --out chooses another folder"
            )

    def _write(self, card: dict, files: Iterable[tuple[str, bytes]]) -> None:
        self.target.parent.mkdir(parents=True, exist_ok=True)
        with _scratch(self.target) as scratch:
            new = scratch / "new"
            new.mkdir()
            for name, content in files:
                path = new / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(content)
            text = json.dumps(card, indent=2) + "\n"
            (new / self.card_name).write_text(text, encoding="utf-8")
            if self.target.exists():
                os.rename(self.target, scratch / "old")
            os.rename(new, self.target)


def png_bytes(pixels: np.ndarray) -> bytes:
    """``pixels``, uint8 [H, W] or [H, W, 3], as a PNG file."""
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, format="PNG")
    return buffer.getvalue()


@contextlib.contextmanager
def _scratch(target: Path) -> Iterator[Path]:
    """A folder beside ``target``, from where a rename puts finished work in place at once."""
    folder = Path(tempfile.mkdtemp(prefix=f".{target.name}.partial-", dir=target.parent))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
