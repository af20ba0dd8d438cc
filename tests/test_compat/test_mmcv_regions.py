"""RoIAlign and RoIPool through mmcv's own functions, against sampling written out in loops."""

from __future__ import annotations

import math

import pytest
import torch

import polaformer  # noqa: F401  (supplies the extension)

pytest.importorskip("mmcv")
from mmcv.ops import RoIAlign, RoIPool, roi_align, roi_pool

NAN, INF = float("nan"), float("inf")

REGIONS = torch.tensor(
    [
        [0, 0.3, 1.2, 9.7, 6.4],
        [1, 2, 2, 5, 7],
        [1, -3, -2, 4, 3],  # half outside
        [0, 6, 5, 40, 30],  # beyond the map
        [0, 4, 4, 5, 5],  # one pixel
        [1, 3.25, 2.5, 3.25, 2.5],  # a point
        [0, 50, 50, 60, 60],  # all outside
    ],
    dtype=torch.float64,
)


def bilinear(plane, y, x):
    """The value at a point: 0 outside, the edge's value within a pixel of the edge."""
    height, width = plane.shape
    if not (-1 <= y <= height and -1 <= x <= width):
        return 0.0
    y, x = min(max(y, 0), height - 1), min(max(x, 0), width - 1)
    top, left = min(math.floor(y), height - 1), min(math.floor(x), width - 1)
    bottom, right = min(top + 1, height - 1), min(left + 1, width - 1)
    down, over = y - top, x - left
    upper = plane[top, left] * (1 - over) + plane[top, right] * over
    lower = plane[bottom, left] * (1 - over) + plane[bottom, right] * over
    return float(upper * (1 - down) + lower * down)


def align_loop(input, rois, size, scale, ratio, mode, aligned):
    shift = 0.5 if aligned else 0.0
    out = torch.zeros(len(rois), input.shape[1], *size, dtype=torch.float64)
    for r, (image, *box) in enumerate(rois.tolist()):
        x1, y1, x2, y2 = (value * scale - shift for value in box)
        extent = [y2 - y1, x2 - x1] if aligned else [max(y2 - y1, 1), max(x2 - x1, 1)]
        bins = [extent[0] / size[0], extent[1] / size[1]]
        grid = [ratio, ratio] if ratio > 0 else [math.ceil(bins[0]), math.ceil(bins[1])]
        for c in range(input.shape[1]):
            for i in range(size[0]):
                for j in range(size[1]):
                    samples = [
                        bilinear(
                            input[int(image), c],
                            y1 + (i + (a + 0.5) / grid[0]) * bins[0],
                            x1 + (j + (b + 0.5) / grid[1]) * bins[1],
                        )
                        for a in range(grid[0])
                        for b in range(grid[1])
                    ]
                    if samples:
                        value = max(samples) if mode == "max" else sum(samples) / len(samples)
                        out[r, c, i, j] = value
    return out


def features(seed=0, **kind):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(2, 2, 8, 11, dtype=torch.float64, generator=generator).to(**kind)


@pytest.mark.parametrize("aligned", [True, False])
@pytest.mark.parametrize("ratio", [0, 1, 2])
@pytest.mark.parametrize("mode", ["avg", "max"])
@pytest.mark.parametrize("size, scale", [((2, 3), 1.0), ((1, 1), 0.5), ((3, 2), 1.7)])
def test_roi_align_against_loops(size, scale, mode, ratio, aligned):
    input = features()
    expected = align_loop(input, REGIONS, size, scale, ratio, mode, aligned)
    pooled = roi_align(input, REGIONS, size, scale, ratio, mode, aligned)
    torch.testing.assert_close(pooled, expected, rtol=1e-10, atol=1e-10)


def test_roi_align_of_a_ramp_is_the_centre():
    """On a map whose value is its column the mean over a box inside is its middle, minus half."""
    ramp = torch.arange(20.0).expand(1, 1, 20, 20)
    pooled = roi_align(ramp, torch.tensor([[0, 4.0, 4, 10, 8]]), 1, 1.0, 0, "avg", True)
    assert pooled.item() == pytest.approx((4 + 10) / 2 - 0.5)


@pytest.mark.parametrize("aligned", [True, False])
@pytest.mark.parametrize("ratio", [0, 2])
@pytest.mark.parametrize("mode", ["avg", "max"])
def test_roi_align_gradient(mode, ratio, aligned):
    input = features(seed=1).requires_grad_()
    assert torch.autograd.gradcheck(
        lambda x: roi_align(x, REGIONS, (2, 3), 0.9, ratio, mode, aligned), input
    )


def test_gradient_through_a_view_that_is_not_contiguous():
    """A head may hand back a transposed gradient."""
    input = features(seed=2).requires_grad_()
    weight = torch.randn(len(REGIONS), 2, 3, 2, dtype=torch.float64)
    pooled = RoIAlign((2, 3), 1.0)(input, REGIONS)
    (pooled.transpose(2, 3) * weight).sum().backward()
    transposed, input.grad = input.grad, None
    (RoIAlign((2, 3), 1.0)(input, REGIONS) * weight.transpose(2, 3)).sum().backward()
    torch.testing.assert_close(transposed, input.grad)


def pool_loop(input, rois, size, scale):
    """Fast R-CNN's maximum over whole pixels; the last pixel belongs to the region."""
    height, width = input.shape[2:]
    out = torch.zeros(len(rois), input.shape[1], *size, dtype=input.dtype)
    for r, (image, x1, y1, x2, y2) in enumerate(rois.tolist()):
        left, top = x1 * scale, y1 * scale
        wide, high = (x2 + 1) * scale - left, (y2 + 1) * scale - top
        if wide <= 0 or high <= 0:
            continue
        for i in range(size[0]):
            rows = _whole(top + i * (high / size[0]), top + (i + 1) * (high / size[0]), height)
            for j in range(size[1]):
                columns = _whole(
                    left + j * (wide / size[1]), left + (j + 1) * (wide / size[1]), width
                )
                bin = input[int(image), :, rows, columns]
                if bin.numel():
                    out[r, :, i, j] = bin.amax((1, 2))
    return out


def _whole(start, end, limit):
    return slice(max(math.floor(start), 0), min(max(math.ceil(end), 0), limit))


@pytest.mark.parametrize("size, scale", [((2, 3), 1.0), ((1, 1), 0.5), ((3, 2), 0.3)])
def test_roi_pool_against_loops(size, scale):
    backwards = torch.tensor([[0, 5, 5, 4.5, 4.5], [0, 5, 5, 3, 8]], dtype=torch.float64)
    rois = torch.cat([REGIONS, backwards])
    input = features(seed=3)
    assert torch.equal(roi_pool(input, rois, size, scale), pool_loop(input, rois, size, scale))


def test_roi_pool_in_small_pieces(monkeypatch):
    from polaformer.compat.mmcv_ops import roi_pool as module

    input = features(seed=3)
    whole = roi_pool(input, REGIONS, (3, 2), 0.7)
    monkeypatch.setattr(module, "PIECE", 1)
    assert torch.equal(roi_pool(input, REGIONS, (3, 2), 0.7), whole)


def test_roi_pool_gradient():
    input = features(seed=4).requires_grad_()
    assert torch.autograd.gradcheck(lambda x: roi_pool(x, REGIONS, (2, 3), 0.8), input)


def test_roi_pool_gradient_goes_to_the_largest_pixel():
    input = torch.zeros(1, 1, 4, 4, requires_grad=True)
    with torch.no_grad():
        input[0, 0, 1, 2] = 5
    roi_pool(input, torch.tensor([[0.0, 0, 0, 3, 3], [0, 0, 0, 3, 3]]), 1, 1.0).sum().backward()
    assert input.grad.nonzero().tolist() == [[0, 0, 1, 2]]
    assert input.grad.sum() == 2


POOLS = {
    "align": lambda x, rois: roi_align(x, rois, 2, 1.0, 0, "avg", True),
    "align max": lambda x, rois: roi_align(x, rois, 2, 1.0, 0, "max", True),
    "align fixed": lambda x, rois: roi_align(x, rois, 2, 1.0, 2, "avg", False),
    "pool": lambda x, rois: roi_pool(x, rois, 2, 1.0),
}


@pytest.fixture(params=list(POOLS))
def pool(request):
    return POOLS[request.param]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_types_are_computed_in_single_precision(pool, dtype):
    input, rois = features(dtype=dtype).requires_grad_(), REGIONS.to(dtype)
    pooled = pool(input, rois)
    assert pooled.dtype == dtype
    exact_input = input.detach().float().requires_grad_()
    exact = pool(exact_input, rois.float())
    assert torch.equal(pooled, exact.to(dtype))
    grad = torch.randn_like(pooled)
    pooled.backward(grad)
    exact.backward(grad.float())
    assert torch.equal(input.grad, exact_input.grad.to(dtype))


@pytest.mark.parametrize("images", [0, 2])
def test_no_regions(pool, images):
    input = torch.rand(images, 3, 5, 5, requires_grad=True)
    pooled = pool(input, torch.zeros(0, 5))
    assert pooled.shape == (0, 3, 2, 2)
    pooled.sum().backward()
    assert input.grad.shape == input.shape
    assert not input.grad.any()


@pytest.mark.parametrize("value", [NAN, INF, -INF])
@pytest.mark.parametrize("column", [0, 1, 4])
def test_a_region_that_is_not_finite_gives_nan_and_harms_no_other(pool, column, value):
    rois = REGIONS.clone()
    rois[2, column] = value
    if column == 0 and value in (INF, -INF):
        with pytest.raises(IndexError, match="region 2 belongs to image"):
            pool(features(), rois)
        return
    input = features().requires_grad_()
    pooled = pool(input, rois)
    others = [0, 1, 3, 4, 5, 6]
    assert pooled[2].isnan().all()
    assert torch.equal(pooled[others], pool(features(), rois[others]))
    pooled[others].sum().backward()
    assert input.grad.isfinite().all()


@pytest.mark.parametrize("image", [-1, 2])
def test_a_region_of_no_image(pool, image):
    rois = REGIONS.clone()
    rois[4, 0] = image
    with pytest.raises(IndexError, match=f"region 4 belongs to image {image}.*batch has 2"):
        pool(features(), rois)


@pytest.mark.parametrize("aligned", [True, False])
def test_regions_that_end_before_they_start_are_empty(aligned):
    backwards = torch.tensor([[0, 5, 5, 2, 3.0]], dtype=torch.float64)
    empty = torch.tensor([[0, 5, 5, 5, 5.0]], dtype=torch.float64)
    for mode in ("avg", "max"):
        pooled = roi_align(features(), backwards, 2, 1.0, 0, mode, aligned)
        assert torch.equal(pooled, roi_align(features(), empty, 2, 1.0, 0, mode, aligned))


def test_a_map_of_one_pixel(pool):
    pooled = pool(torch.full((1, 1, 1, 1), 3.0), torch.tensor([[0.0, 0, 0, 1, 1]]))
    assert pooled.shape == (1, 1, 2, 2)
    assert pooled[0, 0, 0, 0] == 3


def test_modules_of_mmcv():
    input = features()
    assert torch.equal(
        RoIAlign(2, 1.0, 2)(input, REGIONS), roi_align(input, REGIONS, 2, 1.0, 2, "avg", True)
    )
    assert torch.equal(RoIPool(2, 1.0)(input, REGIONS), roi_pool(input, REGIONS, 2, 1.0))
