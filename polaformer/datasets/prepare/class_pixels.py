"""Pixels of every class: shares, classes that are absent, and weights for the loss."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from polaformer.datasets.layout import name_some
from polaformer.datasets.sources import printable

_LISTED_UP_TO = 60
_ENDS_LISTED = 20


@dataclass
class SplitPixels:
    """Counts of one split; the arrays have one entry for each class.

    Args:
        pixels: pixels of the class.
        images: masks in which it occurs.
        reach: all pixels of those masks.
        ignored: pixels that belong to no class and are left out.
    """

    pixels: np.ndarray
    images: np.ndarray
    reach: np.ndarray
    ignored: int = 0

    @classmethod
    def empty(cls, count: int) -> SplitPixels:
        """Nothing counted yet, for ``count`` classes."""
        pixels, images, reach = np.zeros((3, count), np.int64)
        return cls(pixels, images, reach)

    def add(self, pixels: np.ndarray, ignored: int = 0) -> None:
        """Count one mask in which the classes have ``pixels``."""
        there = pixels > 0
        self.pixels += pixels
        self.images += there
        self.reach[there] += pixels.sum() + ignored
        self.ignored += ignored

    def shares(self) -> np.ndarray:
        """Percent of the labelled pixels; zeros if there are none."""
        return 100.0 * self.pixels / max(1, int(self.pixels.sum()))


@dataclass
class ClassPixels:
    """Pixels of the classes ``names`` in each split; ``raw`` is how the files write them."""

    names: Sequence[str]
    raw: Sequence[str]
    splits: dict[str, SplitPixels] = field(default_factory=dict)

    def weights(self) -> np.ndarray:
        """Weights by median frequency of the first split; a class without a pixel has weight 1.

        The frequency of a class is its pixels over all pixels of the images it occurs in, and its
        weight the median of the frequencies over its own (Eigen and Fergus, arXiv 1411.4734).
        """
        first = next(iter(self.splits.values()))
        there = first.pixels > 0
        frequency = first.pixels[there] / first.reach[there]
        weights = np.ones(len(self.names))
        if there.any():
            weights[there] = np.median(frequency) / frequency
        return weights

    def absent(self) -> dict[str, list[str]]:
        """For each split the names of the classes without a pixel in it."""
        return {
            title: [name for name, count in zip(self.names, one.pixels, strict=True) if not count]
            for title, one in self.splits.items()
        }

    def absence(self) -> tuple[list[str], list[str]]:
        """Sentences on absent classes: those without a pixel anywhere, then those of one split."""
        absent = self.absent()
        never = [name for name in self.names if all(name in gone for gone in absent.values())]
        everywhere = [f"{len(never)} class(es) have no pixel: {_some(never)}"] if never else []
        partly = []
        for title, gone in absent.items():
            only = [name for name in gone if name not in never]
            if only:
                partly.append(f"{title} has no pixel of {len(only)} class(es): {_some(only)}")
        return everywhere, partly

    def rows(self) -> list[dict[str, Any]]:
        """One record for each class, for a table or a file."""
        rows = []
        shares = {title: one.shares() for title, one in self.splits.items()}
        weights = self.weights()
        for i, name in enumerate(self.names):
            row: dict[str, Any] = {"index": i, "class": printable(name), "value": self.raw[i]}
            for title, one in self.splits.items():
                row[f"{title} pixels"] = int(one.pixels[i])
                row[f"{title} share (%)"] = float(shares[title][i])
                row[f"{title} images"] = int(one.images[i])
            row["weight"] = float(weights[i])
            rows.append(row)
        return rows

    def shares(self) -> dict[str, list[float]]:
        """Percent of every class for each split, for a picture."""
        return {title: one.shares().tolist() for title, one in self.splits.items()}

    def table(self) -> list[str]:
        """Lines with value, class, and share and images in each split, the largest first.

        Of more than 60 classes the 20 largest and the 20 smallest are listed.
        """
        first = next(iter(self.splits.values()))
        order = sorted(range(len(self.names)), key=lambda i: -int(first.pixels[i]))
        rows = self.rows()
        names = [str(row["class"]) for row in rows]
        width = max(map(len, [*names, "pixels per class"]))
        value = max(map(len, [*self.raw, "value"]))
        heads = "".join(f"  {title:>11} {'images':>8}" for title in self.splits)
        lines = [f"{'pixels per class':<{width}}  {'value':>{value}}{heads}"]
        shown = order
        if len(order) > _LISTED_UP_TO:
            shown = [*order[:_ENDS_LISTED], -1, *order[-_ENDS_LISTED:]]
        for i in shown:
            if i < 0:
                lines.append(f"… {len(order) - 2 * _ENDS_LISTED} more classes …")
                continue
            cells = "".join(f"  {_percent(rows[i], title)}" for title in self.splits)
            lines.append(f"{names[i]:<{width}}  {self.raw[i]:>{value}}{cells}")
        ignored = "".join(f"  {one.ignored:>11,} {'':>8}" for one in self.splits.values())
        return [*lines, f"{'ignored, in pixels':<{width}}  {'':>{value}}{ignored}".rstrip()]


def _percent(row: Mapping[str, Any], title: str) -> str:
    count, share = row[f"{title} pixels"], row[f"{title} share (%)"]
    text = f"{share:.4g} %" if count else "none"
    return f"{text:>11} {row[f'{title} images']:>8,}"


def _some(names: Sequence[str]) -> str:
    return name_some([printable(name) for name in names], 10)
