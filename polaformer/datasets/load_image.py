"""The first step of a detection or segmentation pipeline: from a file to an array."""

from __future__ import annotations

from typing import Any

import numpy as np

from polaformer.datasets.decode import ALPHA_RULES, BadImage, decode_rgb
from polaformer.datasets.integrity import RECORDED, SampleError, other_size, reason
from polaformer.datasets.sources import FolderReader, PackedNames, printable
from polaformer.errors import UserError, did_you_mean
from polaformer.registry import TRANSFORMS


class UnreadableImage(SampleError):
    """An image file that is missing, damaged or not of its recorded size."""


@TRANSFORMS.register_module()
class LoadImage:
    """Reads ``img_path`` as BGR uint8 [H, W, 3], whatever the file's format and colours.

    Sets ``img``, ``img_shape`` and ``ori_shape`` (height, width), ``height``, ``width`` and
    ``scale_factor`` (1, 1). Raises SampleError naming the file if it does not decode, or if
    ``height`` and ``width`` were recorded and are not the picture's.

    Args:
        alpha: what shows through transparent pixels: 'white', 'black', or 'drop' for the colour
            stored there.
        exif: 'auto' turns the picture as its EXIF orientation says, unless only the stored
            orientation has the recorded width and height; True always turns it, False never.
    """

    def __init__(self, alpha: str = "white", exif: str | bool = "auto") -> None:
        if alpha not in ALPHA_RULES:
            hint = did_you_mean(alpha, ALPHA_RULES)
            raise UserError(
                f"LoadImage: alpha={alpha!r} is not known{'; ' + hint if hint else ''} (allowed: "
                f"{', '.join(ALPHA_RULES)})"
            )
        if exif not in ("auto", True, False):
            raise UserError(f"LoadImage: exif={exif!r} must be 'auto', True or False")
        self.alpha = alpha
        self.exif = exif

    def __call__(self, results: dict[str, Any]) -> dict[str, Any]:
        path = str(results["img_path"])
        width, height = results.get("width"), results.get("height")
        size = None if width is None or height is None else (int(width), int(height))
        try:
            image = decode_rgb(
                FolderReader("", PackedNames([path])).read(0),
                alpha=self.alpha,
                exif=bool(self.exif),
                size=size if self.exif == "auto" else None,
            )
            if size is not None and image.size != size:
                raise BadImage(other_size(image.size, size, _recorded(results)))
        except (BadImage, OSError) as error:
            raise UnreadableImage(
                f"bad image {printable(path)}: {reason(error)}; mend or remove it, or train on the "
                "rest with on_error='skip'"
            ) from error
        shape = (image.height, image.width)
        results["img"] = np.ascontiguousarray(np.asarray(image)[..., ::-1])
        results["img_shape"] = results["ori_shape"] = shape
        results["height"], results["width"] = shape
        results["scale_factor"] = (1.0, 1.0)  # MMDetection wants one, also of pictures as they are
        return results

    def __repr__(self) -> str:
        return f"LoadImage(alpha={self.alpha!r}, exif={self.exif!r})"


def _recorded(results: dict[str, Any]) -> str:
    mask = results.get("seg_map_path")
    return RECORDED if mask is None else f"is the size of its label image {printable(str(mask))}"
