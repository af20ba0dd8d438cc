"""From the bytes of any picture to an 8-bit RGB image, or to a reason why not."""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache

import numpy as np
from PIL import Image, ImageOps, UnidentifiedImageError

# Formats whose PIL reader needs another program, or knows the header only.
_NO_PIXELS = {"BUFR", "EPS", "GRIB", "HDF5", "MPEG", "WMF"}
_ORIENTATION, _ON_ITS_SIDE = 0x0112, (5, 6, 7, 8)
ALPHA_RULES = ("white", "black", "drop")


class BadImage(Exception):
    """A file that gives no picture; the message is the reason, without the file's name."""


@lru_cache(maxsize=1)
def image_extensions() -> frozenset[str]:
    """Lower-case file endings ('.jpg') of every format PIL decodes on its own."""
    known = Image.registered_extensions()
    return frozenset(
        ending.lower()
        for ending, kind in known.items()
        if kind in Image.OPEN and kind not in _NO_PIXELS
    )


def is_image_name(name: str) -> bool:
    """Whether ``name`` ends like an image file, in any case."""
    dot = name.rfind(".")
    return dot > name.rfind("/") and name[dot:].lower() in image_extensions()


def decode_rgb(
    data: bytes,
    *,
    alpha: str = "white",
    exif: bool = True,
    size: tuple[int, int] | None = None,
) -> Image.Image:
    """The picture in ``data`` as 8-bit RGB, its first frame if there are several.

    Args:
        alpha: what shows through transparent pixels, 'white' or 'black'; 'drop' keeps the colour
            stored there, as torchvision and timm do.
        exif: turn the picture as its EXIF orientation says.
        size: (width, height) that is recorded elsewhere; where the picture has it only as it is
            stored, it is not turned.

    Raises BadImage for anything that does not decode to the last byte, including PIL's limit on
    decompression bombs.
    """
    with opened(data) as image, decoding():
        image.load()
        turned = upright(image) if exif else image
        if size is not None and turned.size != size and image.size == size:
            turned = image
        return _to_rgb(turned, alpha)


def looks_sound(head: bytes, tail: bytes) -> bool:
    """Whether the start is a picture's and the end has that format's end mark.

    False means that only decoding can tell: the format has no mark, or the header is longer than
    ``head``.
    """
    try:
        with opened(head) as image:
            return _has_end_mark(image.format, tail)
    except BadImage:
        return False


def stored_size(data: bytes) -> tuple[int, int]:
    """(width, height) as stored, from the start of a file; raises BadImage if it has none."""
    with opened(data) as image:
        return image.size


def upright_size(data: bytes) -> tuple[int, int]:
    """(width, height) after turning as EXIF says, from a whole file, without decoding pixels."""
    with opened(data) as image:
        try:
            # PIL turns a TIFF on its own, and its size says so beforehand.
            turned = image.format != "TIFF" and image.getexif().get(_ORIENTATION, 1) in _ON_ITS_SIDE
        except Exception:  # a damaged EXIF block says nothing about the pixels
            turned = False
        width, height = image.size
        return (height, width) if turned else (width, height)


def orientation(data: bytes) -> int:
    """EXIF orientation, from the start of a file; 1 where it says none, and for a TIFF.

    PIL turns a TIFF on its own. A PNG that says it after its pixels counts as saying none.
    """
    try:
        with opened(data) as image:
            if image.format == "TIFF" or (image.format == "PNG" and "exif" not in image.info):
                return 1
            return int(image.getexif().get(_ORIENTATION, 1))
    except Exception:  # a damaged EXIF block says nothing about the pixels
        return 1


def turn_is_open(picture: int, label_image: int, size: tuple[int, int] | None) -> bool:
    """Whether sizes cannot tell if a label image lies on the turned picture or the stored one.

    Both EXIF orientations are given, and the label image's (width, height). One that is turned
    itself belongs to the turned picture.
    """
    if picture not in range(2, 9) or label_image in range(2, 9):
        return False
    return picture not in _ON_ITS_SIDE or (size is not None and size[0] == size[1])


def verify(data: bytes) -> None:
    """Raise BadImage if ``data`` does not decode; a JPEG is read to its end, but not enlarged."""
    with opened(data) as image, decoding():
        image.draft("RGB", (max(1, image.width // 8), max(1, image.height // 8)))
        image.load()
        _to_rgb(image, "drop")


@contextmanager
def decoding() -> Iterator[None]:
    """Any error of a decoder as BadImage with its reason."""
    try:
        yield
    except (BadImage, MemoryError):
        raise
    except Exception as error:  # decoders raise every kind of error on damaged input
        raise BadImage(_reason(error)) from error


def opened(data: bytes) -> Image.Image:
    """The picture whose header ``data`` starts with, not decoded yet; BadImage if there is none."""
    if not data:
        raise BadImage("the file is empty (0 bytes)")
    try:
        return Image.open(io.BytesIO(data))
    except UnidentifiedImageError as error:
        raise BadImage("the content is no image that PIL knows") from error
    except Exception as error:  # as above
        raise BadImage(_reason(error)) from error


def _reason(error: Exception) -> str:
    if isinstance(error, Image.DecompressionBombError):
        return f"too many pixels (PIL's limit against decompression bombs is {_bomb_limit()})"
    text = " ".join(str(error).split()) or type(error).__name__
    if "truncated" in text.lower() or isinstance(error, EOFError):
        return f"cut short: {text}"
    return f"does not decode: {text}"


def _bomb_limit() -> str:
    limit = Image.MAX_IMAGE_PIXELS
    return "off" if limit is None else f"{2 * limit:,}"


def _has_end_mark(kind: str | None, tail: bytes) -> bool:
    if kind in ("JPEG", "MPO"):
        return b"\xff\xd9" in tail
    if kind == "PNG":
        return b"IEND" in tail
    return False


def upright(image: Image.Image) -> Image.Image:
    """``image`` turned as its EXIF orientation says."""
    try:
        return ImageOps.exif_transpose(image)
    except Exception:  # a damaged EXIF block says nothing about the pixels
        return image


def _to_rgb(image: Image.Image, alpha: str) -> Image.Image:
    mode = image.mode
    if mode == "RGB" and "transparency" not in image.info:
        return image if type(image) is Image.Image else image.copy()
    if mode.startswith("I") or mode == "F":
        return _deep_gray_to_8_bit(image).convert("RGB")
    if "transparency" in image.info or mode in ("RGBA", "LA", "PA", "RGBa", "La"):
        return _flatten(image, alpha)
    try:
        return image.convert("RGB")
    except ValueError as error:
        raise BadImage(f"colour mode {mode} has no conversion to RGB") from error


def _flatten(image: Image.Image, alpha: str) -> Image.Image:
    if image.mode == "La":
        image = image.convert("LA")
    pixels = image.convert("RGBA")
    if alpha == "drop":
        return pixels.convert("RGB")
    under = Image.new("RGBA", pixels.size, (*([255] * 3 if alpha == "white" else [0] * 3), 255))
    under.alpha_composite(pixels)
    return under.convert("RGB")


def _deep_gray_to_8_bit(image: Image.Image) -> Image.Image:
    """16-bit and floating-point gray scaled to 0..255 (PIL's own conversion clips them instead)."""
    values = np.asarray(image)
    low, high = float(values.min()), float(values.max())
    if image.mode == "F":
        if not (low >= 0 and high <= 1):
            raise BadImage("floating-point gray outside of 0..1 has no defined brightness")
        scale = 255.0
    else:
        if low < 0 or high > 65535:
            raise BadImage("32-bit gray beyond 0..65535 has no defined brightness")
        scale = 255.0 / 65535.0
    return Image.fromarray(np.rint(values.astype(np.float64) * scale).astype(np.uint8))
