"""Draw one scene: a background, clutter that is no digit, and digits that may overlap."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from PIL import Image, ImageDraw

_SIDES = (96, 192)
_DIGITS = (1, 9)
_SIZES = (28, 64)  # height of a digit in pixels
_VISIBLE = 0.7  # share of each digit's pixels that later ones leave
_APART = 0.95  # the same for those digits that keep away from others
_COVERED = 0.3  # share of a digit's own pixels that may lie on others: it would merge with them
_TRIES = 12
_INK = 0.5  # a pixel belongs to the digit from this opacity on
_LUMA = np.array([0.299, 0.587, 0.114])


@dataclass
class Placed:
    """A digit in a scene; ``mask`` is bool [H, W] of what can be seen of its ``pixels``."""

    digit: int
    mask: np.ndarray
    pixels: int


def draw_scene(
    generator: np.random.Generator, glyphs: list[np.ndarray], empty: bool = False
) -> tuple[np.ndarray, list[Placed]]:
    """A picture, uint8 [H, W, 3], and its digits; those drawn later hide those drawn earlier.

    ``glyphs[d]`` are pictures of digit d, float [N, 8, 8] with ink from 0 to 1.
    """
    width, height = generator.integers(_SIDES[0], _SIDES[1] + 1, 2).tolist()
    canvas = _background(generator, height, width)
    canvas = _clutter(generator, canvas, glyphs)
    placed: list[Placed] = []
    count = 0 if empty else int(generator.integers(_DIGITS[0], _DIGITS[1] + 1))
    for _ in range(count):
        digit = int(generator.integers(10))
        opacity = _render(generator, glyphs[digit])
        least = _APART if generator.random() < 0.8 else _VISIBLE
        for _ in range(_TRIES):
            spot = _spot(generator, opacity, height, width)
            mask = np.zeros((height, width), bool)
            mask[spot] = opacity > _INK
            if _leaves(mask, placed, least):
                _paint(generator, canvas, spot, opacity)
                for one in placed:
                    one.mask &= ~mask
                placed.append(Placed(digit, mask, int(mask.sum())))
                break
    noise = generator.normal(0, generator.uniform(1, 7), canvas.shape)
    return np.clip(np.rint(canvas + noise), 0, 255).astype(np.uint8), placed


def _leaves(mask: np.ndarray, placed: list[Placed], least: float) -> bool:
    """Whether a digit at ``mask`` leaves share ``least`` of each of the others to be seen."""
    hidden = [int((one.mask & mask).sum()) for one in placed]
    if sum(hidden) > _COVERED * mask.sum():
        return False
    return all(
        int(one.mask.sum()) - loss >= least * one.pixels
        for one, loss in zip(placed, hidden, strict=True)
        if loss
    )


def _background(generator: np.random.Generator, height: int, width: int) -> np.ndarray:
    """Float [H, W, 3]: one colour, slowly changing, at times striped."""
    base = generator.uniform(20, 150, 3)
    base = base.mean() + (base - base.mean()) * generator.uniform(0.1, 0.7)
    grid = generator.normal(0, generator.uniform(4, 18), (5, 5, 3))
    canvas = base + _enlarge(grid, height, width)
    if generator.random() < 0.3:
        angle = generator.uniform(0, np.pi)
        rows, columns = np.mgrid[:height, :width]
        phase = (columns * np.cos(angle) + rows * np.sin(angle)) / generator.uniform(3, 14)
        canvas += generator.uniform(3, 14) * np.sin(phase)[..., None]
    if generator.random() < 0.3:
        grain = generator.normal(0, generator.uniform(3, 10), (height // 4, width // 4, 1))
        canvas += _enlarge(grain, height, width)
    return canvas


def _clutter(
    generator: np.random.Generator, canvas: np.ndarray, glyphs: list[np.ndarray]
) -> np.ndarray:
    for _ in range(generator.integers(0, 4)):
        _blob(generator, canvas)
    for _ in range(generator.integers(0, 5)):
        _stroke(generator, canvas)
    height, width = canvas.shape[:2]
    for _ in range(generator.integers(0, 4)):
        digit = int(generator.integers(10))
        glyph = glyphs[digit][generator.integers(len(glyphs[digit]))]
        top, left = generator.choice([0, 4], 2)
        opacity = _opacity(glyph[top : top + 4, left : left + 4], *generator.integers(8, 19, 2))
        opacity = np.rot90(opacity, int(generator.integers(4)))
        _paint(generator, canvas, _spot(generator, opacity, height, width), opacity)
    return canvas


def _blob(generator: np.random.Generator, canvas: np.ndarray) -> None:
    """A soft ellipse."""
    height, width = canvas.shape[:2]
    rows, columns = np.mgrid[:height, :width]
    radii = generator.uniform(5, 30, 2)
    away = ((rows - generator.uniform(0, height)) / radii[0]) ** 2
    away = away + ((columns - generator.uniform(0, width)) / radii[1]) ** 2
    opacity = np.clip((1.1 - away) / generator.uniform(0.2, 1), 0, 1) * generator.uniform(0.2, 0.8)
    canvas += opacity[..., None] * (generator.uniform(20, 235, 3) - canvas)


def _stroke(generator: np.random.Generator, canvas: np.ndarray) -> None:
    """A thin line with bends, longer than a digit is high or thinner than its lines."""
    height, width = canvas.shape[:2]
    layer = Image.new("L", (width, height))
    start = generator.uniform(0, 1, 2) * (width, height)
    steps = generator.normal(0, generator.uniform(8, 40), (int(generator.integers(2, 5)), 2))
    points = np.concatenate([start[None], start + np.cumsum(steps, axis=0)])
    ImageDraw.Draw(layer).line(
        [tuple(point) for point in points.tolist()],
        fill=int(generator.integers(80, 230)),
        width=int(generator.integers(1, 3)),
    )
    opacity = np.asarray(layer, float)[..., None] / 255
    canvas += opacity * (generator.uniform(10, 245, 3) - canvas)


def _render(generator: np.random.Generator, pictures: np.ndarray) -> np.ndarray:
    """One of ``pictures`` at a random size, aspect and slant, cropped: opacity, float [h, w]."""
    glyph = pictures[generator.integers(len(pictures))]
    # small sizes are as frequent as large ones by ratio
    size = np.exp(generator.uniform(np.log(_SIZES[0]), np.log(_SIZES[1])))
    high = round(size)
    wide = max(round(size * generator.uniform(0.85, 1.15)), 12)
    opacity = _opacity(glyph, high, wide)
    opacity = np.pad(opacity, max(high, wide) // 4)
    angle = float(generator.uniform(-10, 10))
    turned = Image.fromarray(opacity.astype(np.float32)).rotate(angle, Image.Resampling.BILINEAR)
    opacity = np.asarray(turned)
    rows = np.flatnonzero((opacity > 0.02).any(axis=1))
    columns = np.flatnonzero((opacity > 0.02).any(axis=0))
    return opacity[rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1]


def _opacity(glyph: np.ndarray, height: int, width: int) -> np.ndarray:
    """Ink enlarged smoothly and made firm, so that a digit has an edge: float [height, width]."""
    ink = _enlarge(np.pad(glyph, 1)[..., None], round(height * 1.25), round(width * 1.25))[..., 0]
    return np.clip((ink - 0.2) / 0.45, 0, 1)


def _enlarge(grid: np.ndarray, height: int, width: int) -> np.ndarray:
    planes = [
        Image.fromarray(np.ascontiguousarray(grid[..., plane], np.float32)).resize(
            (width, height), Image.Resampling.BICUBIC
        )
        for plane in range(grid.shape[-1])
    ]
    return np.stack([np.asarray(plane, float) for plane in planes], axis=-1)


def _spot(
    generator: np.random.Generator, opacity: np.ndarray, height: int, width: int
) -> tuple[slice, slice]:
    high, wide = opacity.shape
    top = int(generator.integers(0, height - high + 1))
    left = int(generator.integers(0, width - wide + 1))
    return slice(top, top + high), slice(left, left + wide)


def _paint(
    generator: np.random.Generator,
    canvas: np.ndarray,
    spot: tuple[slice, slice],
    opacity: np.ndarray,
) -> None:
    """Lay a colour over ``spot`` that is lighter than what is there."""
    under = canvas[spot]
    there = float((under @ _LUMA).mean())
    wanted = min(there + generator.uniform(70, 150), 250)
    colour = wanted + generator.uniform(-40, 40, 3)
    colour += wanted - colour @ _LUMA
    canvas[spot] = under + opacity[..., None] * (np.clip(colour, 0, 255) - under)
