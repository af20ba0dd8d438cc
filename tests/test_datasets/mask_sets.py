"""Small sets of images with label images."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from polaformer.datasets import SegmentationDataset

WIDTH, HEIGHT = 24, 16
NAMES = ("sky", "road", "car")


def picture(width: int = WIDTH, height: int = HEIGHT) -> Image.Image:
    """Noise of seed 0."""
    noise = np.random.default_rng(0).integers(0, 256, (height, width, 3), dtype=np.uint8)
    return Image.fromarray(noise)


def stripes(*values: int, width: int = WIDTH, height: int = HEIGHT) -> np.ndarray:
    """Vertical stripes of equal width, uint8 [height, width]."""
    columns = np.repeat(np.array(values, dtype=np.uint8), -(-width // len(values)))[:width]
    return np.tile(columns, (height, 1))


class Scene:
    """Images 0.jpg … in 'images' and label images of three stripes in 'masks'."""

    def __init__(self, root: Path, count: int = 3) -> None:
        self.root = root
        self.images, self.masks = root / "images", root / "masks"
        for i in range(count):
            self.add(str(i))

    def add(
        self,
        stem: str,
        labels: np.ndarray | None = None,
        image: str | None = ".jpg",
        mask: str | None = ".png",
    ) -> None:
        """An image and a label image with these endings; None leaves one out."""
        labels = stripes(0, 1, 2) if labels is None else labels
        if image is not None:
            path = self.images / f"{stem}{image}"
            path.parent.mkdir(parents=True, exist_ok=True)
            picture(labels.shape[1], labels.shape[0]).save(path)
        if mask is not None:
            path = self.masks / f"{stem}{mask}"
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(labels).save(path)

    def dataset(self, **options: Any) -> SegmentationDataset:
        start = {
            "data_root": str(self.root),
            "data_prefix": {"img_path": "images", "seg_map_path": "masks"},
            "classes": NAMES,
        }
        return SegmentationDataset(**{**start, **options})

    def said(
        self, monkeypatch: pytest.MonkeyPatch, **options: Any
    ) -> tuple[SegmentationDataset, str]:
        """The data set and every warning of its building."""
        lines: list[str] = []

        def note(text: str, logger: Any = None, level: int = logging.INFO) -> None:
            lines.extend([text] if level == logging.WARNING else [])

        monkeypatch.setattr("polaformer.datasets.segmentation.print_log", note)
        return self.dataset(**options), "\n".join(lines)
