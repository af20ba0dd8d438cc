"""From a model's coarse logits to labels at an image's original size, a strip of rows at a time.

Logits of all classes at full size are the largest thing that a segmentor could hold (10 GB for
4096 x 4096 pixels and 150 classes). Here they exist for ``STRIP_NUMBERS`` numbers only: a source
keeps logits at the stride of the head and gives any rows of the model's input, ``rows_of_view``
brings them to the original image, ``label_image`` turns them into labels and forgets them.

C classes, [h, w] the head's grid, [H, W] the model's input or the original image.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

Size = tuple[int, int]
IGNORED = 255
STRIP_NUMBERS = 2**22
"""Logits in one strip (16 MiB); a few such arrays exist at a time."""
FLIPS = {None: (), "horizontal": (-1,), "vertical": (-2,), "diagonal": (-1, -2)}
"""Direction of a flip -> the axes it reverses."""


class Source(Protocol):
    """Rows of logits at the size of the model's input."""

    size: Size
    channels: int
    align_corners: bool
    device: torch.device

    def rows(self, index: Tensor) -> Tensor:
        """Logits [C, r, W] in float32 of the rows ``index``, int64 [r] on the CPU, ascending.

        Calls go through the image in one direction, down or up.
        """
        ...


@dataclass(frozen=True)
class View:
    """How the model's input came from the original image.

    Args:
        size: height and width of the original.
        padding: pixels added left, right, above and below, after scaling and flipping.
        flip: 'horizontal', 'vertical', 'diagonal' (both) or None.
    """

    size: Size
    padding: tuple[int, int, int, int] = (0, 0, 0, 0)
    flip: str | None = None


class WholeLogits:
    """Logits [C, h, w] of a whole image; ``size`` is that of the model's input."""

    def __init__(self, logits: Tensor, size: Size, align_corners: bool) -> None:
        self.logits, self.size, self.align_corners = logits, size, align_corners
        self.channels, self.device = logits.shape[0], logits.device

    def rows(self, index: Tensor) -> Tensor:
        values = resized_rows(self.logits, index, self.size[0], self.align_corners)
        return resized_columns(values, self.size[1], self.align_corners)


class WindowLogits:
    """Logits of overlapping windows of an image, averaged where they overlap.

    Windows are computed when their rows are asked for, a row of windows at a time, and forgotten
    when they are behind. The last window of a row or column is moved back into the image; an image
    smaller than the window is one window of its own size.

    Args:
        run: images [n, 3, H, W] to logits [n, C, h, w].
        image: [3, H, W].
        crop: height and width of a window.
        stride: rows and columns from one window to the next, at most ``crop``.
        batch: windows that ``run`` gets at once.
    """

    def __init__(
        self,
        run: Callable[[Tensor], Tensor],
        image: Tensor,
        crop: Size,
        stride: Size,
        align_corners: bool,
        channels: int,
        batch: int = 1,
    ) -> None:
        self.run, self.image, self.batch = run, image, batch
        self.align_corners, self.channels, self.device = align_corners, channels, image.device
        self.size: Size = (image.shape[-2], image.shape[-1])
        self.row_spans, self.column_spans = (
            spans(*sides) for sides in zip(self.size, crop, stride, strict=True)
        )
        self.row_count = _cover(self.row_spans, self.size[0])
        self.column_count = _cover(self.column_spans, self.size[1]).to(self.device)
        self._known: dict[int, Tensor] = {}

    def rows(self, index: Tensor) -> Tensor:
        first, last = int(index[0]), int(index[-1])
        sums = torch.zeros(self.channels, len(index), self.size[1], device=self.device)
        self._known = {k: v for k, v in self._known.items() if self._touches(k, first, last)}
        for k, (top, bottom) in enumerate(self.row_spans):
            if not self._touches(k, first, last):
                continue
            logits = self._known.pop(k) if k in self._known else self._row_of_windows(k)
            bounds = torch.searchsorted(index, torch.tensor([top, bottom])).tolist()
            self._add(sums, logits, index, bounds, top, bottom)
            # A neighbouring strip may need the row before its own first one again.
            if top <= first + 1 or bottom >= last:
                self._known[k] = logits
        count = self.row_count[index].to(self.device)[:, None] * self.column_count
        return sums.div_(count)

    def _touches(self, k: int, first: int, last: int) -> bool:
        top, bottom = self.row_spans[k]
        return top <= last and bottom > first

    def _row_of_windows(self, k: int) -> Tensor:
        """Logits [n, C, h, w] of the k-th row of windows."""
        top, bottom = self.row_spans[k]
        crops = [self.image[:, top:bottom, left:right] for left, right in self.column_spans]
        groups = (crops[i : i + self.batch] for i in range(0, len(crops), self.batch))
        return torch.cat([self.run(torch.stack(group)) for group in groups])

    def _add(
        self,
        sums: Tensor,
        logits: Tensor,
        index: Tensor,
        bounds: list[int],
        top: int,
        bottom: int,
    ) -> None:
        start, stop = bounds
        if start == stop:
            return
        values = resized_rows(logits, index[start:stop] - top, bottom - top, self.align_corners)
        for (left, right), window in zip(self.column_spans, values, strict=True):
            window = resized_columns(window, right - left, self.align_corners)
            sums[:, start:stop, left:right] += window


def spans(side: int, crop: int, stride: int) -> list[Size]:
    """First pixel and end of each window along a side of an image."""
    count = max(side - crop + stride - 1, 0) // stride + 1
    ends = (min(i * stride + crop, side) for i in range(count))
    return [(max(end - crop, 0), end) for end in ends]


def _cover(ranges: Sequence[Size], side: int) -> Tensor:
    """How many of ``ranges`` hold each pixel of a side, float32."""
    count = torch.zeros(side)
    for start, stop in ranges:
        count[start:stop] += 1
    return count


def taps(index: Tensor, source: int, target: int, align_corners: bool) -> tuple[Tensor, ...]:
    """The two source rows that make each row ``index`` of ``target`` rows, and the second's part.

    In float32, as ``torch.nn.functional.interpolate`` computes them.
    """
    position = index.float()
    if align_corners:
        scale = torch.tensor((source - 1) / (target - 1) if target > 1 else 0.0)
        position = position * scale
    else:
        position = ((position + 0.5) * torch.tensor(source / target) - 0.5).clamp_(min=0)
    low = position.long().clamp_(max=source - 1)
    return low, (low + 1).clamp_(max=source - 1), position - low


def resized_rows(values: Tensor, index: Tensor, height: int, align_corners: bool) -> Tensor:
    """Rows ``index`` of maps [..., h, w] brought to ``height`` rows, float32 [..., r, w]."""
    device = values.device
    low, high, part = taps(index, values.shape[-2], height, align_corners)
    lower = values.index_select(-2, low.to(device)).float()
    if not part.any():
        return lower
    return lower.lerp(values.index_select(-2, high.to(device)).float(), part.to(device)[:, None])


def resized_columns(values: Tensor, width: int, align_corners: bool) -> Tensor:
    """Maps [C, r, w] with ``width`` columns."""
    if values.shape[-1] == width:
        return values
    size = (values.shape[-2], width)
    return F.interpolate(values[None], size, mode="bilinear", align_corners=align_corners)[0]


def rows_of_view(source: Source, view: View, start: int, stop: int) -> Tensor:
    """Logits [C, r, W] of the original image's rows ``start`` to ``stop``.

    Padding is cut, the flip undone and the rest resized bilinearly, as mmseg does with whole maps.
    """
    left, right, above, below = view.padding
    height, width = source.size[0] - above - below, source.size[1] - left - right
    axes = FLIPS[view.flip]
    low, high, part = taps(torch.arange(start, stop), height, view.size[0], source.align_corners)
    if -2 in axes:
        low, high = height - 1 - low, height - 1 - high
    between = bool(part.any())
    needed, place = torch.unique(
        above + (torch.cat([low, high]) if between else low), return_inverse=True
    )
    values = source.rows(needed)[..., left : left + width]
    place = place.to(values.device)
    lower = values.index_select(-2, place[: len(low)])
    if between:
        part = part.to(values.device)[:, None]
        lower = lower.lerp(values.index_select(-2, place[len(low) :]), part)
    if -1 in axes:
        lower = lower.flip(-1)
    return resized_columns(lower, view.size[1], source.align_corners)


def strips_of_view(source: Source, view: View) -> Iterator[tuple[int, int, Tensor]]:
    """First row, end and logits [C, r, W] of each strip of the original image, from the top."""
    for start, stop in strip_bounds(view.size, source.channels, source.size[1]):
        yield start, stop, rows_of_view(source, view, start, stop)


def strip_bounds(size: Size, channels: int, width: int = 0) -> Iterator[Size]:
    """First row and end of strips of ``STRIP_NUMBERS`` logits, at ``width`` columns if wider."""
    step = max(1, STRIP_NUMBERS // (channels * max(size[1], width)))
    for start in range(0, size[0], step):
        yield start, min(start + step, size[0])


def label_image(
    strips: Iterator[tuple[int, int, Tensor]],
    size: Size,
    channels: int,
    threshold: float = 0.5,
    truth: Tensor | None = None,
) -> tuple[Tensor, tuple[float, int] | None]:
    """Labels [1, H, W] of the original image and, given its ``truth`` [H, W], the cross entropy.

    Labels are uint8, or int32 beyond 255 classes. With one channel a label is whether the sigmoid
    exceeds ``threshold``. The cross entropy is its sum over the pixels whose truth is not 255,
    added up in float64, and their number.
    """
    labels = torch.zeros((1, *size), dtype=torch.uint8 if channels <= IGNORED else torch.int32)
    total, count = 0.0, 0
    for start, stop, logits in strips:
        if start == 0:
            labels = labels.to(logits.device)
        if channels == 1:
            labels[0, start:stop] = logits[0].sigmoid() > threshold
        else:
            labels[0, start:stop] = logits.argmax(dim=0)
        if truth is not None:
            loss, valid = cross_entropy(logits, truth[start:stop])
            total, count = total + loss, count + valid
    return labels, None if truth is None else (total, count)


def cross_entropy(logits: Tensor, truth: Tensor) -> tuple[float, int]:
    """Sum over valid pixels, and their number; logits [C, r, W], truth [r, W] with 255 ignored."""
    if logits.shape[0] == 1:
        logits = torch.cat([torch.zeros_like(logits), logits])
    target = truth.to(logits.device, torch.long)
    losses = F.cross_entropy(logits[None], target[None], ignore_index=IGNORED, reduction="none")
    return losses.double().sum().item(), int((target != IGNORED).sum())
