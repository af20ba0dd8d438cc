"""Every kind of picture arrives as 8-bit RGB; what is none gives a reason."""

from __future__ import annotations

import io

import numpy as np
import pytest
from PIL import Image

from polaformer.datasets.decode import (
    BadImage,
    decode_rgb,
    is_image_name,
    looks_sound,
    verify,
)


def encoded(image: Image.Image, kind: str = "PNG", **options: object) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, format=kind, **options)
    return buffer.getvalue()


def ramp(height: int = 40, width: int = 56) -> Image.Image:
    rows, columns = np.mgrid[0:height, 0:width]
    pixels = np.stack([columns * 4, rows * 5, (rows + columns) * 2], axis=-1)
    return Image.fromarray(pixels.astype(np.uint8))


def mean_colour(image: Image.Image) -> np.ndarray:
    assert image.mode == "RGB"
    return np.asarray(image, dtype=float).mean((0, 1))


def test_gray_8_and_16_bit_have_the_mean_of_their_rgb_twin():
    gray = ramp().convert("L")
    twin = mean_colour(gray.convert("RGB"))
    deep = Image.fromarray(np.asarray(gray).astype(np.uint16) * 257)
    assert deep.mode == "I;16"
    for data in (encoded(gray), encoded(deep), encoded(deep, "TIFF"), encoded(gray, "JPEG")):
        np.testing.assert_allclose(mean_colour(decode_rgb(data)), twin, atol=1)


def test_16_bit_gray_is_scaled_and_not_clipped():
    deep = Image.fromarray(np.array([[0, 257, 32896, 65535]], dtype=np.uint16))
    values = np.asarray(decode_rgb(encoded(deep)))[0, :, 0]
    assert values.tolist() == [0, 1, 128, 255]


def test_32_bit_gray_within_16_bits_is_read_as_16_bits():
    image = Image.fromarray(np.array([[0, 65535]], dtype=np.int32))
    assert np.asarray(decode_rgb(encoded(image, "TIFF")))[0, :, 0].tolist() == [0, 255]
    beyond = Image.fromarray(np.array([[0, 70000]], dtype=np.int32))
    with pytest.raises(BadImage, match="32-bit gray"):
        decode_rgb(encoded(beyond, "TIFF"))


def test_floating_point_gray_between_0_and_1():
    image = Image.fromarray(np.array([[0, 0.5, 1]], dtype=np.float32))
    assert np.asarray(decode_rgb(encoded(image, "TIFF")))[0, :, 0].tolist() == [0, 128, 255]
    with pytest.raises(BadImage, match="floating-point"):
        decode_rgb(encoded(Image.fromarray(np.full((2, 2), 7, np.float32)), "TIFF"))


@pytest.mark.parametrize("kind", ["JPEG", "TIFF"])
def test_cmyk_has_the_mean_of_its_rgb_twin(kind):
    data = encoded(ramp().convert("CMYK"), kind, **({"quality": 95} if kind == "JPEG" else {}))
    assert Image.open(io.BytesIO(data)).mode == "CMYK"
    np.testing.assert_allclose(mean_colour(decode_rgb(data)), mean_colour(ramp()), atol=3)


def test_the_adobe_mark_means_inverted_cmyk():
    data = encoded(Image.new("CMYK", (16, 16), (0, 255, 255, 0)), "JPEG", quality=95)
    assert b"Adobe" in data
    np.testing.assert_allclose(mean_colour(decode_rgb(data)), (255, 0, 0), atol=3)


def test_one_bit():
    image = Image.fromarray(np.array([[0, 255], [255, 255]], np.uint8)).convert("1")
    assert mean_colour(decode_rgb(encoded(image))).tolist() == [191.25] * 3


@pytest.mark.parametrize("rule", ["white", "black", "drop"])
def test_alpha(rule):
    image = Image.new("RGBA", (8, 8), (0, 0, 200, 100))
    got = mean_colour(decode_rgb(encoded(image), alpha=rule))
    share = 100 / 255
    expected = {
        "white": (255 * (1 - share), 255 * (1 - share), 200 * share + 255 * (1 - share)),
        "black": (0, 0, 200 * share),
        "drop": (0, 0, 200),
    }[rule]
    np.testing.assert_allclose(got, expected, atol=1)


def test_opaque_alpha_changes_nothing():
    image = ramp()
    image.putalpha(255)
    assert np.array_equal(np.asarray(decode_rgb(encoded(image))), np.asarray(ramp()))


def test_gray_with_alpha_and_palettes_with_transparency():
    gray = Image.new("LA", (4, 4), (90, 0))
    assert mean_colour(decode_rgb(encoded(gray))).tolist() == [255] * 3
    assert mean_colour(decode_rgb(encoded(gray), alpha="drop")).tolist() == [90] * 3
    palette = Image.new("P", (4, 4), 1)
    palette.putpalette([0, 0, 0, 10, 200, 30])
    assert mean_colour(decode_rgb(encoded(palette))).tolist() == [10, 200, 30]
    for transparency in (1, b"\xff\x00"):
        data = encoded(palette, transparency=transparency)
        assert mean_colour(decode_rgb(data)).tolist() == [255] * 3
        assert mean_colour(decode_rgb(data, alpha="drop")).tolist() == [10, 200, 30]


def test_exif_orientation_turns_the_picture():
    exif = Image.Exif()
    exif[0x0112] = 6  # the camera was turned: rotate by 90 degrees clockwise to see it upright
    data = encoded(ramp(40, 56), "JPEG", exif=exif, quality=95)
    upright = decode_rgb(data)
    assert upright.size == (40, 56)
    stored = decode_rgb(data, exif=False)
    assert stored.size == (56, 40)
    assert np.array_equal(np.asarray(upright), np.rot90(np.asarray(stored), -1))


def test_a_damaged_exif_block_does_not_matter():
    data = encoded(ramp(), "JPEG", exif=b"Exif\x00\x00II*\x00\xff\xff\xff\xff")
    assert decode_rgb(data).size == (56, 40)


def test_first_frame_of_an_animation():
    frames = [Image.new("RGB", (8, 8), colour) for colour in ((255, 0, 0), (0, 0, 255))]
    data = encoded(frames[0], "GIF", save_all=True, append_images=frames[1:])
    assert mean_colour(decode_rgb(data)).tolist() == [255, 0, 0]


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "GIF", "WEBP", "BMP", "TIFF"])
def test_a_cut_file_is_found_with_and_without_full_decoding(kind):
    pixels = np.random.default_rng(0).integers(0, 255, (64, 64, 3), dtype=np.uint8)
    data = encoded(Image.fromarray(pixels), kind)
    short = data[: len(data) * 6 // 10]
    verify(data)
    assert looks_sound(data[:2000], data[-64:]) == (kind in ("JPEG", "PNG"))
    assert not looks_sound(short[:2000], short[-64:])
    with pytest.raises(BadImage):
        verify(short)
    with pytest.raises(BadImage):
        decode_rgb(short)


@pytest.mark.parametrize(
    "data, reason", [(b"", "empty"), (b"just text\n", "no image"), (b"\xff\xd8\xff\xe0", ".")]
)
def test_what_is_no_picture(data, reason):
    assert not looks_sound(data, data[-64:])
    with pytest.raises(BadImage, match=reason):
        verify(data)
    with pytest.raises(BadImage, match=reason):
        decode_rgb(data)


def test_a_decompression_bomb_is_a_bad_file(monkeypatch):
    data = encoded(Image.new("1", (400, 400)))
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 1000)
    with pytest.raises(BadImage, match="too many pixels"):
        decode_rgb(data)
    with pytest.raises(BadImage, match="too many pixels"):
        verify(data)
    assert not looks_sound(data, data[-64:])


def test_image_names():
    for name in ("A.JPG", "x/b.jpeg", "c.PnG", "d.webp", "e.tif", "f.bmp", "g.JPEG"):
        assert is_image_name(name)
    for name in ("jpg", "a.txt", "b.pdf", "x.jpg/readme", "c.json", "d.eps"):
        assert not is_image_name(name)
