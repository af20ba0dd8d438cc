"""Every image file that a camera or a scanner writes arrives as BGR, the right way up."""

from __future__ import annotations

import struct
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from picture_sets import cut
from PIL import Image

from polaformer.datasets import LoadImage
from polaformer.datasets.decode import stored_size, upright_size
from polaformer.datasets.integrity import SampleError
from polaformer.errors import UserError

ORIENTATION = 0x0112
HEIGHT, WIDTH = 40, 64


def quadrants() -> Image.Image:
    """Top left red, top right green, bottom left blue, bottom right gray."""
    pixels = np.empty((HEIGHT, WIDTH, 3), np.uint8)
    pixels[:20, :32], pixels[:20, 32:] = (200, 40, 30), (40, 180, 60)
    pixels[20:, :32], pixels[20:, 32:] = (30, 50, 190), (120, 120, 120)
    return Image.fromarray(pixels)


def load(path: Path, exif: Any = "auto", alpha: str = "white", **recorded: int) -> dict[str, Any]:
    return LoadImage(alpha=alpha, exif=exif)({"img_path": str(path), **recorded})


def deep(image: Image.Image) -> Image.Image:
    return Image.fromarray(np.asarray(image.convert("L")).astype(np.uint16) * 257)


FILES = {
    "plain.jpg": (quadrants(), {"quality": 95, "subsampling": 0}),
    "A.JPG": (quadrants(), {"quality": 95, "subsampling": 0}),
    "progressive.jpeg": (quadrants(), {"quality": 95, "progressive": True, "subsampling": 0}),
    "cmyk.jpg": (quadrants().convert("CMYK"), {"quality": 95, "subsampling": 0}),
    "gray.jpg": (quadrants().convert("L"), {"quality": 95}),
    "plain.png": (quadrants(), {}),
    "gray.png": (quadrants().convert("L"), {}),
    "gray16.png": (deep(quadrants()), {}),
    "palette.png": (quadrants().quantize(8), {}),
    "alpha.png": (quadrants().convert("RGBA"), {}),
    "plain.bmp": (quadrants(), {}),
    "plain.tif": (quadrants(), {"compression": "tiff_lzw"}),
    "gray16.tiff": (deep(quadrants()), {}),
    "cmyk.tif": (quadrants().convert("CMYK"), {}),
    "lossless.webp": (quadrants(), {"lossless": True}),
    "plain.gif": (quadrants().quantize(8), {}),
}


@pytest.mark.parametrize("name", FILES)
def test_every_format_becomes_bgr(tmp_path: Path, name: str):
    picture, options = FILES[name]
    picture.save(tmp_path / name, **options)
    before = (tmp_path / name).read_bytes()
    got = load(tmp_path / name, height=HEIGHT, width=WIDTH)
    image = got["img"]
    assert image.dtype == np.uint8
    assert image.flags.c_contiguous
    assert got["img_shape"] == got["ori_shape"] == image.shape[:2] == (HEIGHT, WIDTH)
    twin = quadrants().convert("L").convert("RGB") if "gray" in name else quadrants()
    expected = np.asarray(twin)[..., ::-1]
    for rows in (slice(2, 14), slice(26, 38)):
        for columns in (slice(2, 26), slice(38, 62)):
            mean = image[rows, columns].mean((0, 1))
            np.testing.assert_allclose(mean, expected[rows, columns].mean((0, 1)), atol=3)
    assert (tmp_path / name).read_bytes() == before


def test_one_bit_png_and_first_page_of_several(tmp_path: Path):
    Image.fromarray(np.eye(8, dtype=bool)).save(tmp_path / "bit.png")
    np.testing.assert_array_equal(load(tmp_path / "bit.png")["img"][..., 0], np.eye(8) * 255)
    other = Image.new("RGB", (9, 9))
    quadrants().save(tmp_path / "pages.tif", save_all=True, append_images=[other])
    assert load(tmp_path / "pages.tif")["img_shape"] == (HEIGHT, WIDTH)


def adam7(pixels: np.ndarray) -> bytes:
    """An interlaced PNG: seven passes of ever finer grids (PNG specification, section 8.2)."""
    passes = [(0, 8, 0, 8), (0, 8, 4, 8), (4, 8, 0, 4), (0, 4, 2, 4), (2, 4, 0, 2), (0, 2, 1, 2)]
    rows = [
        b"\0" + row.tobytes()
        for top, down, left, across in [*passes, (1, 2, 0, 1)]
        for row in pixels[top::down, left::across]
    ]
    height, width = pixels.shape[:2]
    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 1)
    chunks = {b"IHDR": head, b"IDAT": zlib.compress(b"".join(rows)), b"IEND": b""}
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))
        for name, body in chunks.items()
    )


def test_interlaced_png(tmp_path: Path):
    path = tmp_path / "laced.png"
    path.write_bytes(adam7(np.asarray(quadrants())))
    np.testing.assert_array_equal(load(path)["img"][..., ::-1], np.asarray(quadrants()))


def test_transparent_pixels_show_what_was_asked_for(tmp_path: Path):
    Image.new("RGBA", (4, 4), (10, 20, 30, 0)).save(tmp_path / "clear.png")
    for alpha, bgr in {"white": (255,) * 3, "black": (0,) * 3, "drop": (30, 20, 10)}.items():
        assert tuple(load(tmp_path / "clear.png", alpha=alpha)["img"][0, 0]) == bgr


def turned(path: Path, orientation: int) -> None:
    exif = Image.Exif()
    exif[ORIENTATION] = orientation
    quadrants().save(path, exif=exif.tobytes())


# Where the red quadrant, stored at the top left, is seen: (row, column) of the picture's corner.
RED = {1: (0, 0), 2: (0, -1), 3: (-1, -1), 4: (-1, 0), 5: (0, 0), 6: (0, -1), 7: (-1, -1)}
RED[8] = (-1, 0)


@pytest.mark.parametrize("suffix", ["jpg", "png", "webp", "tif"])
@pytest.mark.parametrize("orientation", range(1, 9))
def test_pictures_stand_upright(tmp_path: Path, orientation: int, suffix: str):
    path = tmp_path / f"a.{suffix}"
    turned(path, orientation)
    on_its_side = orientation >= 5
    shape = (WIDTH, HEIGHT) if on_its_side else (HEIGHT, WIDTH)
    for recorded in ({}, {"height": shape[0], "width": shape[1]}):
        got = load(path, **recorded)
        assert got["img_shape"] == shape
        blue, green, red = got["img"][RED[orientation]].astype(int)
        assert red > 150 > 90 > max(blue, green)
    assert upright_size(path.read_bytes()) == shape[::-1]


@pytest.mark.parametrize("orientation", [5, 6, 7, 8])
@pytest.mark.parametrize("suffix", ["jpg", "png"])
def test_boxes_drawn_on_the_stored_picture_keep_it(tmp_path: Path, orientation: int, suffix: str):
    path = tmp_path / f"a.{suffix}"
    turned(path, orientation)
    got = load(path, height=HEIGHT, width=WIDTH)
    assert got["img_shape"] == (HEIGHT, WIDTH)
    assert got["img"][0, 0, 2] > 150 > got["img"][0, 0, 0]
    assert stored_size(path.read_bytes()[:4096]) == (WIDTH, HEIGHT)


def test_turning_can_be_fixed(tmp_path: Path):
    turned(tmp_path / "a.jpg", 6)
    assert load(tmp_path / "a.jpg", exif=False)["img_shape"] == (HEIGHT, WIDTH)
    assert load(tmp_path / "a.jpg", exif=True)["img_shape"] == (WIDTH, HEIGHT)
    with pytest.raises(SampleError, match="40 x 64 pixels, but 64 x 40 are recorded"):
        load(tmp_path / "a.jpg", exif=True, height=HEIGHT, width=WIDTH)


def test_a_picture_of_another_size_is_refused(tmp_path: Path):
    quadrants().save(tmp_path / "a.png")
    with pytest.raises(SampleError, match=r"a\.png: the picture is 64 x 40 .* 65 x 40"):
        load(tmp_path / "a.png", height=40, width=65)
    with pytest.raises(SampleError, match="are recorded"):
        load(tmp_path / "a.png", height=64, width=40)


def test_bad_files_are_named_with_a_remedy(tmp_path: Path):
    quadrants().save(tmp_path / "cut.png")
    cut(tmp_path / "cut.png", 0.4)
    (tmp_path / "empty.jpg").touch()
    (tmp_path / "text.jpg").write_text("no picture")
    for name, told in {
        "cut.png": "cut short|does not decode",
        "empty.jpg": r"empty \(0 bytes\)",
        "text.jpg": "no image that PIL knows",
        "none.jpg": "the file is missing",
        ".": "not a regular file",
    }.items():
        with pytest.raises(SampleError, match=f"bad image .*{name}: .*({told}).*on_error='skip'"):
            load(tmp_path / name)


def test_wrong_arguments():
    with pytest.raises(UserError, match=r"alpha='whit'.*did you mean 'white'"):
        LoadImage(alpha="whit")
    with pytest.raises(UserError, match=r"exif='yes' must be 'auto', True or False"):
        LoadImage(exif="yes")
    assert repr(LoadImage()) == "LoadImage(alpha='white', exif='auto')"
