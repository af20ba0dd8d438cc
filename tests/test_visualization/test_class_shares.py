"""The picture of the pixels per class, and the files beside it."""

from __future__ import annotations

import csv
import json

import numpy as np
import pytest
from PIL import Image

from polaformer.errors import UserError
from polaformer.visualization.class_shares import draw_shares, write_shares


def test_150_classes_are_one_readable_picture(tmp_path):
    shares = np.geomspace(30, 0.001, 150)
    shares[-1] = 0
    names = [f"a class of a long name {i}" for i in range(150)]
    path = draw_shares({"training": shares, "validation": shares[::-1]}, names, tmp_path / "a.png")
    with Image.open(path) as image:
        # three columns of 50 lines, each line at least 18 pixels high
        assert image.width > 1200
        assert image.height > 50 * 18
        colours = {colour for _, colour in image.convert("RGB").getcolors(1 << 20)}
    assert {(0, 114, 178), (213, 94, 0)} <= colours


def test_two_classes_and_a_single_one(tmp_path):
    for shares in ([100.0], [99.9999, 0.0001], [0.0, 0.0]):
        path = draw_shares({"files": shares}, ["a", "b"][: len(shares)], tmp_path / "a.png")
        with Image.open(path) as image:
            assert image.height < 400


@pytest.mark.parametrize("shares", [{}, {"train": [1.0]}, {"train": []}])
def test_what_does_not_fit_is_no_picture(tmp_path, shares):
    with pytest.raises(UserError, match="no shares of classes"):
        draw_shares(shares, ["a", "b"], tmp_path / "a.png")
    assert list(tmp_path.iterdir()) == []


def test_table_and_document_hold_every_class(tmp_path):
    rows = [
        {"index": i, "class": name, "train pixels": 2 * i, "weight": 0.5 + i}
        for i, name in enumerate(("wall, white", "tür"))
    ]
    paths = write_shares(rows, {"train": [0.0, 100.0]}, tmp_path / "new")
    assert [path.name for path in paths] == ["classes.csv", "classes.json", "classes.png"]
    with open(paths[0], newline="", encoding="utf-8") as file:
        read = list(csv.DictReader(file))
    assert [row["class"] for row in read] == ["wall, white", "tür"]
    assert read[1]["train pixels"] == "2"
    document = json.loads(paths[1].read_text(encoding="utf-8"))
    assert document["class_weight"] == [0.5, 1.5]
    assert document["classes"] == rows
    with pytest.raises(UserError, match="no classes to write"):
        write_shares([], {}, tmp_path)
