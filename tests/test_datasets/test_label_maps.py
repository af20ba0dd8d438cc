"""Label images in every encoding become class indices, or an error that says why not."""

from __future__ import annotations

import io
import pickle
import struct
import zlib
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from PIL import Image

from polaformer.datasets.class_sets import class_set
from polaformer.datasets.decode import BadImage
from polaformer.datasets.label_coding import choose_palette, make_coding
from polaformer.datasets.label_maps import BadLabels, LabelCoding, label_counts
from polaformer.errors import UserError

ABC = ("a", "b", "c")
RAW = np.array([[0, 1, 1, 2], [2, 0, 255, 1]], dtype=np.uint8)
COLORS = [(0, 0, 0), (200, 30, 40), (10, 20, 250)]


def index(count: int = 3) -> LabelCoding:
    return make_coding([f"class {i}" for i in range(count)], None)


def stored(image: Image.Image | np.ndarray, kind: str = "png", **options: Any) -> bytes:
    image = Image.fromarray(image) if isinstance(image, np.ndarray) else image
    file = io.BytesIO()
    image.save(file, kind, **options)
    return file.getvalue()


def palette(labels: np.ndarray, colors: list[tuple[int, int, int]] = COLORS) -> Image.Image:
    image = Image.fromarray(labels).convert("P")
    every = [*colors, *[(7, 7, 7)] * (256 - len(colors))]
    image.putpalette([part for color in every for part in color])
    return image


def png(values: np.ndarray, bits: int, kind: int = 0, channels: int = 1) -> bytes:
    """A PNG of any bit depth (PNG specification, sections 11.2.2 and 7.2)."""
    rows = []
    for row in values:
        if bits == 16:
            body = np.repeat(row.astype(">u2"), channels).tobytes()
        else:
            flat = "".join(f"{value:0{bits}b}" for value in row)
            flat += "0" * (-len(flat) % 8)
            body = bytes(int(flat[i : i + 8], 2) for i in range(0, len(flat), 8))
        rows.append(b"\0" + body)
    height, width = values.shape
    head = struct.pack(">IIBBBBB", width, height, bits, kind, 0, 0, 0)
    table = bytes(part for color in COLORS for part in color)
    chunks = [(b"IHDR", head), *([(b"PLTE", table)] if kind == 3 else [])]
    chunks += [(b"IDAT", zlib.compress(b"".join(rows))), (b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))
        for name, body in chunks
    )


GRAY = Image.fromarray(RAW)
SOLID = np.full_like(RAW, 255)
FILES = {
    "gray": stored(GRAY),
    "gray tiff": stored(GRAY, "tiff", compression="tiff_lzw"),
    "gray bmp": stored(GRAY, "bmp"),
    "gray pgm": stored(GRAY, "ppm"),
    "palette": stored(palette(RAW)),
    "16 bits": stored(RAW.astype(np.uint16)),
    "16 bits tiff": stored(RAW.astype(np.uint16), "tiff"),
    "32 bits tiff": stored(RAW.astype(np.int32), "tiff"),
    "floating point": stored(RAW.astype(np.float32), "tiff"),
    "gray as RGB": stored(GRAY.convert("RGB")),
    "gray as RGBA": stored(np.dstack([RAW, RAW, RAW, SOLID // 2])),
    "gray as RGB, lossless webp": stored(GRAY.convert("RGB"), "webp", lossless=True),
    "gray with alpha": stored(Image.merge("LA", [GRAY, Image.fromarray(SOLID // 3)])),
}


@pytest.mark.parametrize("kind", FILES)
def test_every_encoding_gives_the_same_indices(kind: str):
    got = index().decode(FILES[kind])
    assert got.dtype == np.uint8
    assert got.flags.writeable
    np.testing.assert_array_equal(got, RAW)


@pytest.mark.parametrize("kind", [0, 3])
@pytest.mark.parametrize("bits", [1, 2, 4])
def test_few_bits_a_pixel_are_not_stretched(bits: int, kind: int):
    values = np.array([[0, 1, 1], [1, 0, 1]]) if bits == 1 else np.array([[0, 1, 2], [2, 2, 1]])
    np.testing.assert_array_equal(index().decode(png(values, bits, kind)), values)


@pytest.mark.parametrize("bits", [2, 4])
def test_few_bits_a_pixel_in_a_tiff(bits: int):
    values = np.array([[0, 1, 2, 3]])
    body = int("".join(f"{v:0{bits}b}" for v in values[0]), 2).to_bytes(bits // 2, "big")
    entries = [(256, 4), (257, 1), (258, bits), (259, 1), (262, 1), (273, 8), (278, 1)]
    entries.append((279, len(body)))
    body = body.ljust(4, b"\0")
    tags = b"".join(struct.pack("<HHIHH", tag, 3, 1, value, 0) for tag, value in entries)
    head = struct.pack("<2sHI", b"II", 42, 8 + len(body))
    data = head + body + struct.pack("<H", len(entries)) + tags + bytes(4)
    np.testing.assert_array_equal(index(4).decode(data), values)


def test_sixteen_bits_in_colour_would_lose_their_low_half():
    values = np.array([[0, 1, 2]])
    for kind, channels in ((2, 3), (4, 2), (6, 4)):
        with pytest.raises(BadLabels, match="16 bits a channel in colour"):
            index().decode(png(values, 16, kind, channels))


def test_values_beyond_a_byte():
    raw = np.array([[0, 1000, 40000], [1000, 0, 255]], dtype=np.uint16)
    coding = make_coding(ABC, None, label_values=(0, 1000, 40000))
    np.testing.assert_array_equal(coding.decode(stored(raw)), [[0, 1, 2], [1, 0, 255]])
    with pytest.raises(BadLabels, match=r"no class: 1000 \(2 pixels\), 40000 \(1 pixel\); allowed"):
        index().decode(stored(raw))
    with pytest.raises(BadLabels, match=r"a value that is no class: -1 \(1 pixel\)"):
        index().decode(stored(np.array([[0, -1]], dtype=np.int32), "tiff"))
    with pytest.raises(BadLabels, match="not whole numbers"):
        index().decode(stored(np.array([[0, 0.5]], dtype=np.float32), "tiff"))


def test_the_zero_label_is_taken_away_once():
    raw = np.array([[0, 1, 1, 2], [2, 3, 255, 1]], dtype=np.uint8)
    coding = make_coding(ABC, None, reduce_zero_label=True)
    reduced = coding.decode(stored(raw))
    np.testing.assert_array_equal(reduced, [[255, 0, 0, 1], [1, 2, 255, 0]])
    with pytest.raises(BadLabels, match=r"4 \(1 pixel\); allowed: 1\.\.3 for the 3 classes, 0, "):
        coding.of_values(np.array([[1, 4]]))
    # Class 254 would be value 255, which stays ignored.
    most = make_coding([str(i) for i in range(254)], None, reduce_zero_label=True)
    assert most.of_values(np.array([[254, 255, 0]])).tolist() == [[253, 255, 255]]
    with pytest.raises(UserError, match="255 classes are too many: with reduce_zero_label at most"):
        make_coding([str(i) for i in range(255)], None, reduce_zero_label=True)


def test_at_most_255_classes():
    most = index(255)
    assert most.of_values(np.array([[0, 254, 255]])).tolist() == [[0, 254, 255]]
    with pytest.raises(UserError, match=r"256 classes are too many: .* 0\.\.254, and 255 means"):
        index(256)


def test_values_of_classes_and_ignored_ones():
    coding = make_coding(ABC, None, label_values=(7, (11, 12), 200), ignore_values=(0, 3))
    got = coding.of_values(np.array([[7, 11, 12, 200, 0, 3, 255]], dtype=np.uint8))
    assert got.tolist() == [[0, 1, 1, 2, 255, 255, 255]]
    with pytest.raises(BadLabels, match=r"1 \(2 pixels\); allowed: 7, 11\.\.12, 200 for the 3"):
        coding.of_values(np.array([[1, 1]]))
    rest = make_coding(ABC, None, label_values=(7, 8, 9), ignore_values="rest")
    assert rest.of_values(np.array([[7, 1, 9, 300, -1]])).tolist() == [[0, 255, 2, 255, 255]]
    black_white = make_coding(("no", "yes"), None, label_values=(0, 255))
    assert black_white.of_values(np.array([[0, 255]])).tolist() == [[0, 1]]


def test_known_sets():
    ade = make_coding(class_set("ade20k").classes, class_set("ade20k"))
    assert ade.of_values(np.array([[0, 1, 150, 255]])).tolist() == [[255, 0, 149, 255]]
    kept = make_coding(class_set("ade20k").classes, class_set("ade20k"), reduce_zero_label=False)
    assert kept.of_values(np.array([[0, 149, 255]])).tolist() == [[0, 149, 255]]
    city = class_set("cityscapes")
    raw = make_coding(city.classes, city)
    assert raw.of_values(np.array([[7, 33, 0, 29, -1, 255]])).tolist() == [[0, 18] + [255] * 4]
    done = make_coding(city.classes, city, converted=True)
    assert done.of_values(np.array([[0, 18, 255]])).tolist() == [[0, 18, 255]]
    own = make_coding(city.classes, None)
    assert own.of_values(np.array([[0, 18]])).tolist() == [[0, 18]]


COLOUR_FILES = {
    "RGB": stored(np.array(COLORS, np.uint8)[[[0, 1, 2], [2, 1, 0]]]),
    "RGBA": stored(np.array([(*c, 9) for c in COLORS], np.uint8)[[[0, 1, 2], [2, 1, 0]]]),
    "palette": stored(palette(np.array([[0, 1, 2], [2, 1, 0]], np.uint8))),
    "16 bits": png(np.array([[0, 0, 0]]), 16, 2, 3),
}


@pytest.mark.parametrize("kind", COLOUR_FILES)
def test_colours_stand_for_classes(kind: str):
    coding = make_coding(ABC, None, label_colors=COLORS)
    got = coding.decode(COLOUR_FILES[kind])
    assert got.dtype == np.uint8
    assert got.tolist() == ([[0, 0, 0]] if kind == "16 bits" else [[0, 1, 2], [2, 1, 0]])


def test_colours_of_gray_and_of_nothing():
    coding = make_coding(ABC, None, label_colors=[(0, 0, 0), (255, 255, 255), (9, 9, 9)])
    assert coding.decode(stored(np.array([[0, 255, 9]], np.uint8))).tolist() == [[0, 1, 2]]
    assert coding.decode(stored(np.eye(2, dtype=bool))).tolist() == [[1, 0], [0, 1]]
    pixels = np.array([[(0, 0, 0), (9, 9, 9), (1, 2, 3)]], np.uint8)
    some = make_coding(("a",), None, label_colors=[(0, 0, 0)], ignore_colors=[(9, 9, 9), (1, 2, 3)])
    assert some.of_colors(pixels).tolist() == [[0, 255, 255]]
    rest = make_coding(("a",), None, label_colors=[(1, 2, 3)], ignore_colors="rest")
    assert rest.of_colors(pixels).tolist() == [[255, 255, 0]]


def test_a_colour_outside_of_the_table_names_the_nearest():
    pixels = np.array([[COLORS[0], COLORS[1], (201, 30, 40)], [(8, 0, 0), (8, 0, 0), COLORS[2]]])
    coding = make_coding(ABC, None, label_colors=COLORS)
    with pytest.raises(BadLabels) as caught:
        coding.decode(stored(pixels.astype(np.uint8)))
    told = str(caught.value)
    assert told.startswith("2 colour(s) that are not in the table, 3 pixels (50.0%): (8, 0, 0) (2")
    assert "(201, 30, 40) (1 pixel, nearest (200, 30, 40) = b)" in told
    assert caught.value.pixels[(8, 0, 0)] == 2


def test_smeared_colours_are_put_down_to_jpeg():
    labels = np.kron(np.array([[0, 1], [2, 0]]), np.ones((15, 15), int))
    picture = np.array(COLORS, np.uint8)[labels]
    coding = make_coding(ABC, None, label_colors=COLORS)
    with pytest.raises(BadLabels, match=r"JPEG changes values on saving.*PNG"):
        coding.decode(stored(picture, "jpeg"))
    small = Image.fromarray(picture).resize((47, 47), Image.Resampling.BICUBIC)
    with pytest.raises(BadLabels, match="resized with smoothing, or saved as JPEG once"):
        coding.decode(stored(small))
    gray = Image.fromarray((labels * 60).astype(np.uint8))
    with pytest.raises(BadLabels, match="JPEG changes values"):
        make_coding(ABC, None, label_values=(0, 60, 120)).decode(stored(gray, "jpeg", quality=30))


def test_gray_and_coloured_files_are_told_apart():
    with pytest.raises(BadLabels, match=r"colour picture with 3 colours .*label_colors=\[\(r, g"):
        index().decode(COLOUR_FILES["RGB"])
    coding = make_coding(ABC, None, label_colors=COLORS)
    with pytest.raises(BadLabels, match="for class indices leave label_colors out"):
        coding.decode(FILES["gray"])
    with pytest.raises(BadLabels, match="16 or 32 bits has no colours"):
        coding.decode(FILES["16 bits"])
    with pytest.raises(BadLabels, match="CMYK are not exact"):
        coding.decode(stored(GRAY.convert("CMYK"), "tiff"))
    with pytest.raises(BadLabels, match="CMYK holds no class indices"):
        index().decode(stored(GRAY.convert("CMYK"), "tiff"))


def test_broken_files():
    data = FILES["gray"]
    for broken in (b"", b"no picture", data[: len(data) // 2]):
        with pytest.raises(BadImage):
            index().decode(broken)


@pytest.mark.parametrize("orientation, corner", [(1, 0), (3, 1), (6, 2), (8, 1)])
def test_label_images_are_turned_as_they_say(orientation: int, corner: int):
    """Rows 00 / 21 turned: the value at the top left (EXIF 2.32, tag 274)."""
    exif = Image.Exif()
    exif[0x0112] = orientation
    data = stored(np.array([[0, 0, 1], [2, 1, 1]], np.uint8), exif=exif.tobytes())
    got = index().decode(data)
    assert got.shape == ((2, 3) if orientation < 5 else (3, 2))
    assert got[0, 0] == corner


@pytest.mark.parametrize(
    "options, told",
    [
        ({"label_values": (0, 1)}, r"2 entries for 3 classes"),
        ({"label_values": "abc"}, "must be a list"),
        ({"label_values": (0, 1, 1)}, "value 1 to more than one class"),
        ({"label_values": (0, 1, "2")}, "'2' is no whole number"),
        ({"label_values": (0, 1, 2), "ignore_values": (2,)}, "2 is the value of a class"),
        ({"label_values": (0, 1, 2), "reduce_zero_label": True}, "both say which value"),
        ({"label_colors": COLORS, "reduce_zero_label": True}, "both say which value"),
        ({"label_colors": COLORS, "label_values": (0, 1, 2)}, "exclude each other"),
        ({"label_colors": COLORS[:2]}, "2 colours for 3 classes"),
        ({"label_colors": [*COLORS[:2], COLORS[0]]}, r"\(0, 0, 0\) to more than one"),
        ({"label_colors": [(0, 0, 256)] * 3}, r"\(0, 0, 256\) is no colour"),
        ({"label_colors": COLORS, "ignore_colors": COLORS[:1]}, "is the colour of a class"),
        ({"label_colors": COLORS, "ignore_values": (3,)}, "it is ignore_colors"),
        ({"ignore_colors": COLORS}, "it is ignore_values"),
        ({"ignore_values": "others"}, "'rest' for all"),
        ({"reduce_zero_label": "yes"}, "must be True, False or None"),
    ],
)
def test_options_that_clash(options: dict[str, Any], told: str):
    with pytest.raises(UserError, match=told):
        make_coding(ABC, None, **options)


def test_colours_for_drawing():
    assert choose_palette(ABC, None, None, None) == ((0, 0, 0), (128, 0, 0), (0, 128, 0))
    assert choose_palette(ABC, None, None, COLORS) == tuple(COLORS)
    assert choose_palette(ABC, None, [[1, 2, 3]] * 3, COLORS) == ((1, 2, 3),) * 3
    voc = class_set("voc2012")
    assert choose_palette(voc.classes, voc, None, None) == voc.palette
    with pytest.raises(UserError, match="2 colours for 3 classes"):
        choose_palette(ABC, None, COLORS[:2], None)


def test_pixels_of_every_value():
    labels = np.random.default_rng(0).integers(0, 256, (31, 17), dtype=np.uint8)
    for view in (labels, labels[:, ::2], labels.T):
        np.testing.assert_array_equal(label_counts(view), np.bincount(view.ravel(), minlength=256))
    assert not label_counts(labels[:0]).any()


def test_threads_share_the_table_of_colours():
    coding = make_coding(ABC, None, label_colors=COLORS)
    expected = [[0, 1, 2], [2, 1, 0]]
    with ThreadPoolExecutor(4) as pool:
        for got in pool.map(coding.decode, [COLOUR_FILES["RGB"]] * 16):
            assert got.tolist() == expected
    data = pickle.dumps(coding)
    assert len(data) < 5000  # the table of 16 MB stays here
    assert pickle.loads(data).decode(COLOUR_FILES["RGB"]).tolist() == expected
