"""Class names in scripts that matplotlib's own font does not hold."""

from __future__ import annotations

import logging
import warnings
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from polaformer.visualization import Prediction, draw_confusion, draw_predictions, fonts
from polaformer.visualization.fonts import fonts_with

NOWHERE = "\U000f1234"  # private use: no font of matplotlib's holds it
CIRCLED = "\u24b6"  # in STIXGeneral, which matplotlib brings along, but not in its DejaVu Sans


def prediction(name: str) -> Prediction:
    return Prediction(Image.new("RGB", (8, 8)), name, name)


@pytest.fixture(autouse=True)
def nothing_said_yet() -> None:
    fonts._say_once.cache_clear()


def test_fonts_are_found_by_what_they_hold() -> None:
    chosen, absent = fonts_with(CIRCLED + NOWHERE)
    assert len(chosen) == 1
    assert absent == {NOWHERE}
    assert fonts_with("") == ([], set())


def test_boxes_are_said_once_in_the_log(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    names = [f"{NOWHERE} {i}" for i in range(3)]
    with warnings.catch_warnings(), caplog.at_level(logging.WARNING):
        warnings.simplefilter("error")
        draw_predictions([prediction(name) for name in names], tmp_path / "p.png")
        draw_confusion(np.eye(3).tolist(), names, tmp_path / "c.png")
    assert len(caplog.records) == 1
    assert "characters of no installed font" in caplog.text


def test_a_font_that_is_there_draws_the_name(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        drawn = draw_predictions([prediction(CIRCLED * 4)], tmp_path / "drawn.png")
        ticks = draw_confusion([[1]], [CIRCLED * 4], tmp_path / "ticks.png")
    assert caplog.records == []
    monkeypatch.setattr(fonts, "_add_fonts", lambda figure: False)
    boxes = draw_predictions([prediction(CIRCLED * 4)], tmp_path / "boxes.png")
    box_ticks = draw_confusion([[1]], [CIRCLED * 4], tmp_path / "box_ticks.png")
    assert drawn.read_bytes() != boxes.read_bytes()
    assert ticks.read_bytes() != box_ticks.read_bytes()
    assert Image.open(drawn).size == Image.open(boxes).size
