"""What data sets with a pipeline share: items that cannot be read, and what is said of them."""

from __future__ import annotations

import itertools
import logging
import operator
import os
import traceback
from collections.abc import Mapping, Sequence
from typing import Any

from mmengine.dataset import BaseDataset
from mmengine.logging import print_log
from PIL import Image

from polaformer.datasets.decode import BadImage, decode_rgb
from polaformer.datasets.integrity import SampleError, reason
from polaformer.datasets.load_image import UnreadableImage
from polaformer.datasets.sources import FolderReader, PackedNames, printable
from polaformer.errors import UserError, did_you_mean

_REFETCHES = 1000


class FetchingDataset(BaseDataset):
    """A data set of mmengine that names the file it fails on.

    With on_error='skip' the next sample takes the place of an unreadable one in training. A
    subclass sets ``on_error`` and ``_told`` before the initialisation of this class and has
    ``where``.
    """

    on_error: str
    _told: set[int]

    @property
    def where(self) -> str:
        """The file or folder that stands for the data set in messages."""
        raise NotImplementedError

    def __getitem__(self, index: int) -> Any:
        position = range(len(self))[operator.index(index)]
        order = itertools.chain(range(position, len(self)), range(position))
        for used in itertools.islice(order, _REFETCHES):
            try:
                data = self.prepare_data(used)
            except UnreadableImage as error:
                if self.test_mode or self.on_error == "stop":
                    raise
                self._tell_replaced(used, error)
                continue
            except UserError:
                raise
            except Exception as error:
                raise SampleError(pipeline_failure(self.get_data_info(used), error)) from error
            if data is not None:
                return data
            if self.test_mode:
                path = self.get_data_info(used)["img_path"]
                raise SampleError(f"the pipeline gives nothing for {printable(path)}")
        raise SampleError(
            f"{self.where}: the pipeline gives nothing for {min(len(self), _REFETCHES)} images"
        )

    def _tell_replaced(self, position: int, error: Exception) -> None:
        if position not in self._told:
            self._told.add(position)
            print_log(f"{error}; the next image takes its place", "current", level=logging.WARNING)

    def read_image(self, index: int) -> Image.Image:
        """Image ``index`` as 8-bit RGB, before transforms; raises SampleError naming a bad file."""
        info = self.get_data_info(range(len(self))[operator.index(index)])
        size = None if info["width"] is None else (info["width"], info["height"])
        try:
            data = FolderReader("", PackedNames([info["img_path"]])).read(0)
            return decode_rgb(data, size=size)
        except (BadImage, OSError) as error:
            path = printable(info["img_path"])
            raise SampleError(f"bad image {path}: {reason(error)}") from error


def pipeline_failure(info: Mapping[str, Any], error: Exception) -> str:
    """Which picture the pipeline fails on, and where, on one line."""
    size = f" ({info['width']} x {info['height']} pixels)" if info["width"] else ""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    told = f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__
    last = traceback.extract_tb(error.__traceback__)[-1]
    return (
        f"the pipeline fails on {printable(info['img_path'])}{size}: {told} ({last.name} in "
        f"{last.filename}:{last.lineno})"
    )


def file_size(path: str) -> int | str:
    """Bytes of a file, or 'missing'."""
    try:
        return os.stat(path).st_size
    except OSError:
        return "missing"


def one_of(field: str, value: str, allowed: Sequence[str]) -> None:
    """Raise UserError if ``value`` is none of ``allowed``."""
    if value not in allowed:
        hint = did_you_mean(value, allowed)
        raise UserError(
            f"{field}={value!r} is not known{'; ' + hint if hint else ''} (allowed: "
            f"{', '.join(allowed)})"
        )
