"""Boxes and masks on images: where they are drawn, and what odd input does."""

from __future__ import annotations

import math
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from polaformer.errors import UserError
from polaformer.visualization import Scene, Thing, draw_detections
from polaformer.visualization.detections import (
    GAP,
    MAX_OBJECTS,
    PANEL,
    class_colour,
    mask_of,
    shrink,
)
from polaformer.visualization.fonts import font_runs

WIDTH, HEIGHT = PANEL, PANEL // 2


def grey(width: int = WIDTH, height: int = HEIGHT) -> Image.Image:
    return Image.new("RGB", (width, height), (128, 128, 128))


@pytest.fixture
def panels(tmp_path: Path) -> Callable[[Scene], list[np.ndarray]]:
    """What ``draw_detections`` writes of one scene: its panels, true objects first."""

    def draw(scene: Scene) -> list[np.ndarray]:
        with Image.open(draw_detections([scene], tmp_path / "panels.png")) as image:
            page = np.asarray(image.convert("RGB")).astype(int)
        count, rest = divmod(page.shape[1] - GAP, PANEL + GAP)
        assert rest == 0
        rows = slice(page.shape[0] - GAP - HEIGHT, page.shape[0] - GAP)
        lefts = [GAP + place * (PANEL + GAP) for place in range(count)]
        return [page[rows, left : left + PANEL] for left in lefts]

    return draw


Panels = Callable[[Scene], list[np.ndarray]]


def scene_of(*things: Thing) -> Scene:
    return Scene(grey(), (WIDTH, HEIGHT), things)


def test_a_box_stands_where_it_belongs(panels: Panels) -> None:
    thing = Thing((100.0, 60.0, 200.0, 120.0), 3, "cat")
    (panel,) = panels(scene_of(thing))
    drawn = np.abs(panel - np.array(class_colour(3))).sum(-1) == 0
    assert drawn[60:121, 100].all()
    assert drawn[60:121, 200].all()
    assert drawn[120, 100:201].all()
    assert not drawn[90, 110:190].any()
    assert not drawn[121:].any()
    assert drawn[46:59, 101].all()  # the name, above it


def test_a_mask_tints_what_it_covers(panels: Panels) -> None:
    mask = np.zeros((HEIGHT, WIDTH), dtype=bool)
    mask[80:100, 120:180] = True
    thing = Thing((100.0, 60.0, 200.0, 120.0), 0, "cat", 0.9, mask)
    (panel,) = panels(scene_of(thing))
    assert (panel[90, 150] != 128).any()
    assert (panel[105:118, 110:190] == 128).all()
    small = Thing(thing.box, 0, "cat", 0.9, mask[::2, ::2])
    (other,) = panels(scene_of(small))
    assert (other[90, 150] == panel[90, 150]).all()


def test_boxes_count_in_pixels_of_the_whole_image(panels: Panels) -> None:
    """A photograph of 3800 x 1900 that comes as a thumbnail: a tenth of its boxes."""
    thing = Thing((1000.0, 600.0, 2000.0, 1200.0), 3, "cat")
    both = panels(Scene(grey(76, 38), (10 * WIDTH, 10 * HEIGHT), [thing], [thing]))
    assert len(both) == 2
    for panel in both:
        drawn = np.abs(panel - np.array(class_colour(3))).sum(-1) == 0
        assert drawn[60:121, 100].all()
        assert not drawn[60:121, 90].any()


def test_the_truth_stands_beside_the_prediction_where_it_is_known(panels: Panels) -> None:
    thing = Thing((100.0, 60.0, 200.0, 120.0), 3, "cat")
    true, predicted = panels(Scene(grey(), (WIDTH, HEIGHT), [], [thing]))
    assert (true[90, 100] == np.array(class_colour(3))).all()
    assert (predicted == 128).all()
    assert len(panels(scene_of(thing))) == 1


ODD = [
    [],
    [Thing((math.nan, 0.0, 5.0, 5.0), 0, "nan")],
    [Thing((-50.0, -50.0, 9999.0, 9999.0), 1, "beyond", 1.0)],
    [Thing((30.0, 30.0, 30.0, 30.0), 2, "a point", 0.5)],
    [Thing((60.0, 60.0, 20.0, 20.0), 2, "turned round", 0.5)],
    [Thing((5.0, 5.0, 9.0, 9.0), 10**6, "", None, np.zeros((0, 0), bool), True)],
    [Thing((5.0, 5.0, 9.0, 9.0), 79, "日本語 \U000f1234 дорога\nline", 0.5)],
    [Thing((i, i, i + 50.0, i + 40.0), i, f"name {i}", i / 500) for i in range(500)],
]


@pytest.mark.parametrize("things", ODD, ids=range(len(ODD)))
@pytest.mark.parametrize("size", [(1, 1), (640, 480), (20_000, 30)])
def test_odd_objects_and_sizes(tmp_path: Path, things: list[Thing], size: tuple[int, int]) -> None:
    scene = Scene(grey(min(size[0], 64), min(size[1], 48)), size, things, things, "名前.jpg", "…")
    out = draw_detections([scene] * 3, tmp_path / "p.png", title="ü ✓")
    with Image.open(out) as image:
        assert max(image.size) < 2000
    assert list(tmp_path.iterdir()) == [out]


def test_of_many_the_best_are_drawn(panels: Panels) -> None:
    many = [Thing((5, 5, 50, 50), 1, "x", 0.1)] * MAX_OBJECTS
    best = Thing((300, 100, 350, 150), 7, "x", 0.9)
    (panel,) = panels(scene_of(*many, best, *many))
    assert (panel[149, 325] == np.array(class_colour(7))).all()


def test_an_empty_grid_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="the list is empty"):
        draw_detections([], tmp_path / "p.png")
    assert list(tmp_path.iterdir()) == []


def test_eighty_classes_have_eighty_colours() -> None:
    colours = np.array([class_colour(label) for label in range(80)])
    assert len({tuple(colour) for colour in colours.tolist()}) == 80
    neighbours = np.abs(np.diff(colours, axis=0)).sum(-1)
    assert neighbours.min() > 100


def test_polygons_become_masks() -> None:
    square = [[2.0, 1.0, 6.0, 1.0, 6.0, 4.0, 2.0, 4.0]]
    mask = mask_of(square, (10, 8))
    assert mask is not None
    assert mask.shape == (8, 10)
    rows, columns = np.nonzero(mask)
    assert (rows.min(), rows.max(), columns.min(), columns.max()) == (1, 4, 2, 6)
    large = mask_of([[200.0, 100.0, 600.0, 100.0, 600.0, 400.0]], (1000, 800), longest=100)
    assert large is not None
    assert large.shape == (80, 100)
    assert large[15, 50]


def test_run_lengths_become_masks() -> None:
    """Columns of a 3 x 2 image: 0 1 1 | 0 0 1 (packed by pycocotools 2.0.11 as '122O')."""
    expected = [[0, 0], [1, 0], [1, 1]]
    for counts in ([1, 2, 2, 1], "122O"):
        mask = mask_of({"size": [3, 2], "counts": counts}, (2, 3))
        assert mask is not None
        assert mask.astype(int).tolist() == expected


@pytest.mark.parametrize(
    "segmentation",
    [None, "abc", {"counts": [1, 2]}, {"size": [3, 2], "counts": [99]}, {"size": 3, "counts": []}],
)
def test_what_is_no_mask(segmentation: object) -> None:
    assert mask_of(segmentation, (2, 3)) is None


def test_shrinking_takes_every_nth_pixel() -> None:
    mask = np.arange(24).reshape(1, 4, 6)
    assert shrink(mask, 3).tolist() == [[[0, 2, 4], [12, 14, 16]]]
    assert shrink(mask, 6) is mask or (shrink(mask, 6) == mask).all()


def test_text_is_cut_into_runs_of_one_font() -> None:
    latin, circled, rest = font_runs("cat\u24b6dog")
    assert [latin[1], circled[1], rest[1]] == ["cat", "\u24b6", "dog"]
    assert latin[0] == rest[0] != circled[0]
    assert font_runs("") == []


def test_drawing_needs_neither_torch_nor_matplotlib(tmp_path: Path) -> None:
    code = (
        "import sys\n"
        "from PIL import Image\n"
        "from polaformer.visualization import Scene, Thing, draw_detections\n"
        "scene = Scene(Image.new('RGB', (40, 30)), (40, 30), [Thing((1, 1, 9, 9), 0, 'ä')], [])\n"
        f"draw_detections([scene], {str(tmp_path / 'p.png')!r})\n"
        "sys.exit(bool({'torch', 'matplotlib', 'mmengine'} & set(sys.modules)))\n"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
