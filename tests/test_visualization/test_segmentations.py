"""Class maps beside images: colours, what is ignored, the legend, and what odd input does."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from sklearn.metrics import jaccard_score

from polaformer.errors import UserError
from polaformer.visualization import SegmentedScene, draw_segmentations, segmentations
from polaformer.visualization.detections import class_colour
from polaformer.visualization.grid import GAP
from polaformer.visualization.segmentations import IGNORED, PANEL, image_iou, shrink_map

WIDTH, HEIGHT = PANEL, PANEL // 2
PALETTE = [(10, 20, 30), (200, 100, 0)]
TOP = 44 + 22  # title and caption


def grey(width: int = WIDTH, height: int = HEIGHT) -> Image.Image:
    return Image.new("RGB", (width, height), (128, 128, 128))


def halves(left: int, right: int, shape: tuple[int, int] = (HEIGHT, WIDTH)) -> np.ndarray:
    labels = np.full(shape, left, np.uint8)
    labels[:, shape[1] // 2 :] = right
    return labels


@pytest.fixture
def panels(tmp_path: Path) -> Callable[..., list[np.ndarray]]:
    """The panels of what ``draw_segmentations`` writes of one scene: image, truth, prediction."""

    def draw(scene: SegmentedScene, **options) -> list[np.ndarray]:
        with Image.open(draw_segmentations([scene], tmp_path / "p.png", **options)) as image:
            page = np.asarray(image.convert("RGB")).astype(int)
        count, rest = divmod(page.shape[1] - GAP, PANEL + GAP)
        assert rest == 0
        lefts = [GAP + place * (PANEL + GAP) for place in range(count)]
        return [page[TOP : TOP + HEIGHT, left : left + PANEL] for left in lefts]

    return draw


def test_image_truth_and_prediction_stand_side_by_side(panels) -> None:
    scene = SegmentedScene(grey(), (WIDTH, HEIGHT), halves(0, 1), halves(1, 2))
    image, true, said = panels(scene, palette=PALETTE)
    assert (image == 128).all()
    assert (said[:, :150] == PALETTE[0]).all()
    assert (said[:, 150:] == PALETTE[1]).all()
    assert (true[:, :150] == PALETTE[1]).all()
    assert (true[:, 150:] == class_colour(2)).all()


def test_without_truth_there_are_two_panels(panels) -> None:
    scene = SegmentedScene(grey(), (WIDTH, HEIGHT), halves(0, 1))
    image, said = panels(scene, palette=PALETTE)
    assert (image == 128).all()
    assert (said[:, 150:] == PALETTE[1]).all()


def test_maps_of_any_resolution_fill_their_panels(panels) -> None:
    small, large = halves(0, 1, (5, 10)), halves(0, 1, (1500, 3000))
    scene = SegmentedScene(grey(10, 5), (3000, 1500), small, large)
    _, true, said = panels(scene, palette=PALETTE)
    assert (true == said).all()
    assert (true[:, 150:] == PALETTE[1]).all()


def test_ignored_pixels_are_hatched_in_gray(panels) -> None:
    scene = SegmentedScene(grey(), (WIDTH, HEIGHT), halves(0, 0), halves(0, IGNORED))
    _, true, said = panels(scene, palette=PALETTE)
    right = true[:, 150:].reshape(-1, 3)
    assert {tuple(pixel) for pixel in right.tolist()} == {(120,) * 3, (225,) * 3}
    assert (said == PALETTE[0]).all()


def legend_of(monkeypatch, tmp_path: Path, *maps: np.ndarray, classes=()) -> list[str]:
    written: list[str] = []
    monkeypatch.setattr(
        segmentations, "write_text", lambda draw, place, text, *more: written.append(text)
    )
    scenes = [SegmentedScene(grey(), (WIDTH, HEIGHT), labels, labels, "n.png") for labels in maps]
    draw_segmentations(scenes, tmp_path / "p.png", classes=classes)
    captions = 3 * len(maps)
    return written[captions:]


def test_the_legend_names_what_is_shown_by_size(monkeypatch, tmp_path: Path) -> None:
    labels = halves(2, 0)
    labels[:100] = 2
    labels[0, 0] = IGNORED
    names = legend_of(monkeypatch, tmp_path, labels, classes=("wall", "sky", "tree"))
    assert names == ["tree", "wall", "ignored"]
    assert legend_of(monkeypatch, tmp_path, labels) == ["class 2", "class 0", "ignored"]


def test_a_legend_of_many_classes_is_cut(monkeypatch, tmp_path: Path) -> None:
    labels = np.arange(150).reshape(10, 15)
    names = legend_of(monkeypatch, tmp_path, labels)
    assert len(names) == segmentations.LEGEND_UP_TO + 1
    assert names[-1] == "and 102 more"


def test_iou_of_an_image_against_an_independent_library() -> None:
    """scikit-learn: mean over the classes that occur in one of the maps."""
    generator = np.random.default_rng(0)
    truth = generator.choice([0, 2, 3, 149], (60, 50)).astype(np.uint8)
    predicted = np.where(generator.random(truth.shape) < 0.5, truth, 7).astype(np.int64)
    truth[generator.random(truth.shape) < 0.2] = IGNORED
    counted = truth != IGNORED
    expected = jaccard_score(truth[counted], predicted[counted], average="macro", zero_division=0)
    assert image_iou(truth, predicted) == pytest.approx(100 * expected)


def test_iou_of_a_large_image_is_counted_in_strips(monkeypatch) -> None:
    truth, predicted = halves(0, 1), halves(1, 1)
    whole = image_iou(truth, predicted)
    assert whole == pytest.approx(25.0)  # class 0: 0, class 1: a half
    monkeypatch.setattr(segmentations, "_STRIP", 1000)
    assert image_iou(truth, predicted) == whole
    assert image_iou(np.full((2, 2), IGNORED), np.zeros((2, 2), int)) is None


def test_a_small_map_takes_the_nearest_pixels() -> None:
    labels = np.arange(24, dtype=np.uint8).reshape(4, 6)
    assert shrink_map(labels, 3).tolist() == [[7, 9, 11], [19, 21, 23]]
    assert (shrink_map(labels, 6) == labels).all()
    assert shrink_map(np.zeros((5000, 40), np.uint8)).shape == (PANEL, 2)
    assert shrink_map(np.zeros((1, 1), np.uint8)).shape == (1, 1)


@pytest.mark.parametrize("size", [(1, 1), (640, 480), (20_000, 30)])
@pytest.mark.parametrize("value", [0, 254, 255, 300, -1])
def test_odd_values_and_sizes(tmp_path: Path, size: tuple[int, int], value: int) -> None:
    labels = np.full((3, 4), value, np.int32)
    scene = SegmentedScene(grey(4, 3), size, labels, labels, "名前.jpg", 0.0)
    out = draw_segmentations([scene] * 3, tmp_path / "p.png", classes=("日本",), title="ü ✓")
    with Image.open(out) as image:
        assert max(image.size) < 2000
    assert list(tmp_path.iterdir()) == [out]


def test_an_empty_grid_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="the list is empty"):
        draw_segmentations([], tmp_path / "p.png")
    assert list(tmp_path.iterdir()) == []


def test_drawing_maps_needs_neither_torch_nor_matplotlib(tmp_path: Path) -> None:
    code = (
        "import sys\n"
        "import numpy as np\n"
        "from PIL import Image\n"
        "from polaformer.visualization import SegmentedScene, draw_segmentations\n"
        "maps = np.zeros((3, 4), np.uint8)\n"
        "scene = SegmentedScene(Image.new('RGB', (4, 3)), (4, 3), maps, maps)\n"
        f"draw_segmentations([scene], {str(tmp_path / 'p.png')!r}, classes=['ä'])\n"
        "sys.exit(bool({'torch', 'matplotlib', 'mmengine'} & set(sys.modules)))\n"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
