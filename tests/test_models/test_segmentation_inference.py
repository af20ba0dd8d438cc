"""Strips of rows give what whole maps give, and do not hold them."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from segmentor_toy import peak_bytes
from torch import Tensor

from polaformer.models import segmentation_inference as inference
from polaformer.models.segmentation_inference import (
    FLIPS,
    View,
    WholeLogits,
    WindowLogits,
    label_image,
    rows_of_view,
    spans,
    strips_of_view,
    taps,
)

CLASSES = 3


@pytest.fixture(params=[2**22, 1000, 1])
def strip_numbers(request, monkeypatch) -> int:
    """Numbers in a strip for all rows, some, and one row at a time."""
    monkeypatch.setattr(inference, "STRIP_NUMBERS", request.param)
    return request.param


def random_maps(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0))


def resize(maps: Tensor, size, align: bool) -> Tensor:
    return F.interpolate(maps[None], tuple(size), mode="bilinear", align_corners=align)[0]


def original(full: Tensor, view: View, align: bool) -> Tensor:
    """Whole logits [C, H, W] of the model's input, brought to the original image."""
    left, right, above, below = view.padding
    full = full[:, above : full.shape[1] - below, left : full.shape[2] - right]
    return resize(full.flip(FLIPS[view.flip]), view.size, align)


def in_strips(source, view: View) -> Tensor:
    return torch.cat([logits for _, _, logits in strips_of_view(source, view)], dim=1)


SIZES = [
    ((8, 12), (32, 48), (32, 48)),
    ((9, 7), (33, 27), (20, 61)),
    ((9, 7), (33, 27), (100, 13)),
    ((1, 1), (3, 2), (7, 5)),
    ((16, 16), (64, 64), (3, 3)),
    ((20, 20), (20, 20), (20, 20)),
]


@pytest.mark.parametrize("align", [False, True])
@pytest.mark.parametrize(("grid", "size", "target"), SIZES)
def test_whole_logits_in_strips(strip_numbers, grid, size, target, align):
    logits = random_maps(CLASSES, *grid)
    found = in_strips(WholeLogits(logits, size, align), View(target))
    wanted = resize(resize(logits, size, align), target, align)
    torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("align", [False, True])
@pytest.mark.parametrize("flip", FLIPS)
@pytest.mark.parametrize("padding", [(0, 0, 0, 0), (0, 6, 0, 5), (3, 2, 4, 1)])
def test_flips_and_padding(strip_numbers, flip, padding, align):
    logits, size = random_maps(CLASSES, 9, 11), (33, 43)
    for target in ((33 - sum(padding[2:]), 43 - sum(padding[:2])), (50, 31)):
        view = View(target, padding, flip)
        found = in_strips(WholeLogits(logits, size, align), view)
        wanted = original(resize(logits, size, align), view, align)
        torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-5)


def test_a_flip_of_the_same_size_is_exact():
    logits = random_maps(CLASSES, 8, 8)
    upright = in_strips(WholeLogits(logits, (32, 32), False), View((32, 32)))
    for flip, axes in FLIPS.items():
        turned = in_strips(WholeLogits(logits, (32, 32), False), View((32, 32), flip=flip))
        assert torch.equal(turned, upright.flip(axes))


class Model:
    """A stand-in for a segmentor, at stride 4, that counts its images."""

    def __init__(self) -> None:
        self.kernel = random_maps(CLASSES, 3, 7, 7) / 7
        self.shapes: list[tuple[int, ...]] = []

    def __call__(self, images: Tensor) -> Tensor:
        self.shapes.append(tuple(images.shape))
        return F.conv2d(images, self.kernel, stride=4, padding=3)


def averaged(image: Tensor, crop, stride, align: bool) -> Tensor:
    """Logits [C, H, W] of windows, each padded to the whole image, over their number."""
    model = Model()
    (height, width), (rows, columns) = image.shape[1:], crop
    sums, count = torch.zeros(CLASSES, height, width), torch.zeros(1, height, width)
    for i in range(max(math.ceil((height - rows) / stride[0]), 0) + 1):
        for j in range(max(math.ceil((width - columns) / stride[1]), 0) + 1):
            bottom = min(i * stride[0] + rows, height)
            right = min(j * stride[1] + columns, width)
            top, left = max(bottom - rows, 0), max(right - columns, 0)
            window = image[:, top:bottom, left:right]
            logits = resize(model(window[None])[0], window.shape[1:], align)
            sums += F.pad(logits, (left, width - right, top, height - bottom))
            count[:, top:bottom, left:right] += 1
    return sums / count


WINDOWS = [
    ((30, 41), (16, 24), (11, 16)),
    ((40, 32), (16, 16), (16, 16)),
    ((25, 20), (17, 13), (5, 3)),
    ((10, 40), (16, 16), (8, 8)),
    ((10, 12), (16, 16), (11, 11)),
    ((20, 16), (16, 16), (1, 16)),
]


@pytest.mark.parametrize("align", [False, True])
@pytest.mark.parametrize(("size", "crop", "stride"), WINDOWS)
def test_windows_in_strips(strip_numbers, size, crop, stride, align):
    image = random_maps(3, *size)
    wanted = averaged(image, crop, stride, align)
    for view in (View(size), View((13, 40), flip="vertical"), View((37, 31), (0, 5, 0, 2))):
        model = Model()
        source = WindowLogits(model, image, crop, stride, align, CLASSES)
        found = in_strips(source, view)
        torch.testing.assert_close(found, original(wanted, view, align), rtol=1e-5, atol=1e-5)
        windows = len(source.row_spans) * len(source.column_spans)
        assert sum(shape[0] for shape in model.shapes) == windows, "a window was computed twice"


def test_several_windows_at_once():
    image = random_maps(3, 40, 100)
    one, four = Model(), Model()
    first = WindowLogits(one, image, (16, 16), (12, 12), False, CLASSES)
    second = WindowLogits(four, image, (16, 16), (12, 12), False, CLASSES, batch=4)
    a, b = in_strips(first, View((40, 100))), in_strips(second, View((40, 100)))
    torch.testing.assert_close(a, b)
    assert [shape[0] for shape in one.shapes] == [1] * 24
    assert [shape[0] for shape in four.shapes] == [4, 4] * 3


def test_window_places():
    assert spans(1024, 512, 341) == [(0, 512), (341, 853), (512, 1024)]
    assert spans(512, 512, 341) == [(0, 512)]
    assert spans(300, 512, 341) == [(0, 300)]
    assert spans(513, 512, 512) == [(0, 512), (1, 513)]


@pytest.mark.parametrize("align", [False, True])
@pytest.mark.parametrize(
    ("source", "target"), [(5, 20), (20, 5), (7, 7), (1, 4), (4, 1), (128, 512)]
)
def test_taps_are_those_of_torch(source, target, align):
    rows = torch.arange(source, dtype=torch.float32)
    low, high, part = taps(torch.arange(target), source, target, align)
    found = rows[low].lerp(rows[high], part)
    wanted = F.interpolate(
        rows[None, None, :, None], (target, 1), mode="bilinear", align_corners=align
    )
    torch.testing.assert_close(found, wanted.flatten(), rtol=1e-6, atol=1e-6)


def test_labels_and_cross_entropy(strip_numbers):
    logits, size = random_maps(CLASSES, 10, 9), (10, 9)
    truth = torch.randint(0, CLASSES, size, generator=torch.Generator().manual_seed(1))
    truth[2:4] = 255
    strips = strips_of_view(WholeLogits(logits, size, False), View(size))
    labels, loss = label_image(strips, size, CLASSES, truth=truth)
    assert labels.dtype == torch.uint8
    assert torch.equal(labels[0].long(), logits.argmax(dim=0))
    valid = truth != 255
    wanted = F.cross_entropy(logits[:, valid].T.double(), truth[valid], reduction="sum")
    assert loss == (pytest.approx(wanted.item(), rel=1e-6), 72)


def test_all_pixels_ignored():
    logits, size = random_maps(CLASSES, 4, 4), (4, 4)
    strips = strips_of_view(WholeLogits(logits, size, False), View(size))
    _, loss = label_image(strips, size, CLASSES, truth=torch.full(size, 255))
    assert loss == (0.0, 0)


def test_one_channel_means_two_classes():
    logits = torch.tensor([[[-2.0, -0.5, 0.5, 2.0]]])
    view = View((1, 4))
    truth = torch.tensor([[0, 1, 255, 1]])
    strips = strips_of_view(WholeLogits(logits, view.size, False), view)
    labels, loss = label_image(strips, view.size, 1, threshold=0.3, truth=truth)
    assert labels.tolist() == [[[0, 1, 1, 1]]]
    wanted = sum(math.log1p(math.exp(-v)) for v in (2.0, -0.5, 2.0))
    assert loss == (pytest.approx(wanted, rel=1e-6), 3)


def test_many_classes_get_wider_labels():
    logits = torch.zeros(300, 1, 1)
    logits[299] = 1
    strips = strips_of_view(WholeLogits(logits, (2, 2), False), View((2, 2)))
    labels, _ = label_image(strips, (2, 2), 300)
    assert labels.dtype == torch.int32
    assert labels.unique().tolist() == [299]


def test_half_type_logits_are_widened_before_they_are_interpolated():
    logits = random_maps(CLASSES, 4, 4).bfloat16()
    found = rows_of_view(WholeLogits(logits, (16, 16), False), View((16, 16)), 0, 16)
    torch.testing.assert_close(found, resize(logits.float(), (16, 16), False))


def test_no_full_map_of_all_classes_is_held(monkeypatch):
    """40 classes: by windows, four times the rows cost the bytes of the labels only."""
    monkeypatch.setattr(inference, "STRIP_NUMBERS", 2**17)
    kernel = random_maps(40, 3, 4, 4)

    def run(images: Tensor) -> Tensor:
        return F.conv2d(images, kernel, stride=4)

    def slide(height: int) -> int:
        image = torch.zeros(3, height, 128)
        source = WindowLogits(run, image, (64, 64), (48, 48), False, 40)
        return peak_bytes(
            lambda: label_image(strips_of_view(source, View(source.size)), source.size, 40)
        )

    short, tall = slide(128), slide(512)
    assert tall - short <= 3 * 128 * 128 * 1.1
    assert tall < 0.25 * (40 * 512 * 128 * 4)

    def whole(height: int) -> int:
        logits = torch.zeros(40, height // 4, 32)
        source = WholeLogits(logits, (height, 128), False)
        return peak_bytes(
            lambda: label_image(strips_of_view(source, View(source.size)), source.size, 40)
        )

    assert whole(512) - whole(128) <= 3 * 128 * 128 * 1.1
