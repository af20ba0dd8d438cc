"""NMS and its relatives through mmcv's own functions, against loops written from the papers."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import polaformer  # noqa: F401  (supplies the extension)

pytest.importorskip("mmcv")
from mmcv.ops import batched_nms, nms, nms_match, soft_nms


def iou(a, b, offset=0):
    """Overlap of two boxes in the precision of their values; None if neither has an area."""
    width = min(a[2], b[2]) - max(a[0], b[0]) + a.dtype.type(offset)
    height = min(a[3], b[3]) - max(a[1], b[1]) + a.dtype.type(offset)
    common = max(width, a.dtype.type(0)) * max(height, a.dtype.type(0))
    area_a = (a[2] - a[0] + offset) * (a[3] - a[1] + offset)
    area_b = (b[2] - b[0] + offset) * (b[3] - b[1] + offset)
    union = area_a + area_b - common
    return common / union if union else None


def brute_force(boxes, scores, threshold, offset=0):
    """Greedy suppression in mmcv's order, that of torch's unstable sort."""
    values = boxes.numpy()
    threshold = values.dtype.type(threshold)
    kept = []
    for index in scores.sort(0, descending=True).indices.tolist():
        overlaps = [iou(values[other], values[index], offset) for other in kept]
        if not any(overlap is not None and overlap > threshold for overlap in overlaps):
            kept.append(index)
    return kept


def random_boxes(count, seed=0, dtype=torch.float32, size=40):
    generator = torch.Generator().manual_seed(seed)
    corner = torch.rand(count, 2, generator=generator, dtype=dtype) * size
    extent = torch.rand(count, 2, generator=generator, dtype=dtype) * size / 2
    return torch.cat([corner, corner + extent], 1)


@pytest.mark.parametrize("offset", [0, 1])
@pytest.mark.parametrize("threshold", [0.0, 0.3, 0.7, 1.0])
@pytest.mark.parametrize("count", [1, 2, 17, 120])
def test_nms_against_brute_force(count, threshold, offset):
    boxes = random_boxes(count, seed=count)
    scores = torch.rand(count, generator=torch.Generator().manual_seed(1))
    dets, kept = nms(boxes, scores, threshold, offset=offset)
    assert kept.tolist() == brute_force(boxes, scores, threshold, offset)
    assert torch.equal(dets, torch.cat([boxes, scores[:, None]], 1)[kept])


@pytest.mark.parametrize("levels", [1, 2, 5])
def test_equal_scores_come_in_mmcvs_order(levels):
    """More than 16 equal scores: torch's sort is no longer the stable one."""
    boxes = random_boxes(100, seed=3)
    scores = torch.randint(levels, (100,), generator=torch.Generator().manual_seed(4)).float()
    unstable = scores.sort(0, descending=True).indices
    stable = scores.sort(dim=0, descending=True, stable=True).indices
    assert not torch.equal(unstable, stable)
    assert nms(boxes, scores, 0.4)[1].tolist() == brute_force(boxes, scores, 0.4)


def test_an_overlap_of_just_the_threshold_stays():
    """3 of 5 pixels shared; 0.6 in single precision is above 0.6 in double."""
    boxes = torch.tensor([[0.0, 0, 4, 1], [1, 0, 5, 1]])
    assert nms(boxes, torch.tensor([0.9, 0.8]), 0.6)[1].tolist() == [0, 1]
    assert nms(boxes, torch.tensor([0.9, 0.8]), 0.5999)[1].tolist() == [0]


def test_offset_makes_the_last_pixel_count():
    """(0, 0, 1, 1) and (1, 1, 2, 2) touch; with both ends inside they share 1 of 7 pixels."""
    boxes = torch.tensor([[0.0, 0, 1, 1], [1, 1, 2, 2]])
    scores = torch.tensor([0.5, 0.6])
    assert nms(boxes, scores, 0.1, offset=0)[1].tolist() == [1, 0]
    assert nms(boxes, scores, 0.1, offset=1)[1].tolist() == [1]
    assert nms(boxes, scores, 0.15, offset=1)[1].tolist() == [1, 0]


def test_nms_of_nothing():
    dets, kept = nms(torch.zeros(0, 4), torch.zeros(0), 0.5)
    assert dets.shape == (0, 5)
    assert kept.shape == (0,)
    assert kept.dtype == torch.long


def test_boxes_without_area_stay():
    """Two equal points have no union, and a point in a box has no overlap with it."""
    boxes = torch.tensor([[1.0, 1, 1, 1], [1, 1, 1, 1], [0, 0, 3, 3], [2, 2, 1, 1]])
    assert sorted(nms(boxes, torch.tensor([0.9, 0.8, 0.7, 0.6]), 0.5)[1].tolist()) == [0, 1, 2, 3]


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_numbers_that_are_not_finite(value):
    boxes = torch.tensor([[0.0, 0, 4, 4], [0, value, 4, 4], [0, 0, 4, 4.1], [9, 9, 10, 10]])
    kept = nms(boxes, torch.tensor([0.9, 0.8, 0.7, 0.6]), 0.5)[1].tolist()
    assert 0 in kept
    assert 3 in kept
    assert 2 not in kept
    kept = nms(boxes[[0, 2, 3]], torch.tensor([0.9, value, 0.6]), 0.5)[1].tolist()
    assert len(kept) == 2


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_nms_in_other_types(dtype):
    boxes, scores = random_boxes(60, seed=5).to(dtype), torch.rand(60).to(dtype)
    dets, kept = nms(boxes, scores, 0.5)
    exact = boxes if dtype == torch.float64 else boxes.float()
    assert kept.tolist() == brute_force(exact, scores, 0.5)
    assert dets.dtype == dtype


def test_nms_options_of_mmcv():
    boxes, scores = random_boxes(50, seed=6), torch.linspace(0, 1, 50)
    full = nms(boxes, scores, 0.5)[1]
    assert nms(boxes, scores, 0.5, max_num=3)[1].tolist() == full[:3].tolist()
    kept = nms(boxes, scores, 0.5, score_threshold=0.5)[1]
    assert kept.tolist() == [index for index in full.tolist() if scores[index] > 0.5]
    dets, from_array = nms(boxes.numpy(), scores.numpy(), 0.5)
    assert isinstance(dets, np.ndarray)
    assert from_array.tolist() == full.tolist()


def test_scores_keep_their_gradient():
    boxes, scores = random_boxes(30, seed=7).requires_grad_(), torch.rand(30, requires_grad=True)
    dets, kept = nms(boxes, scores, 0.5)
    dets.sum().backward()
    chosen = torch.zeros(30).index_fill(0, kept, 1)
    assert torch.equal(scores.grad, chosen)
    assert torch.equal(boxes.grad, chosen[:, None].expand(-1, 4))


@pytest.mark.parametrize("split", [10000, 10])
def test_batched_nms_leaves_classes_apart(split):
    boxes, scores = random_boxes(60, seed=8), torch.rand(60)
    classes = torch.arange(60) % 3
    config = dict(type="nms", iou_threshold=0.4, split_thr=split)
    dets, kept = batched_nms(boxes, scores, classes, config)
    alone = [
        members[index]
        for members in ((classes == label).nonzero()[:, 0].tolist() for label in range(3))
        for index in brute_force(boxes[members], scores[members], 0.4)
    ]
    assert kept.tolist() == sorted(alone, key=lambda index: -scores[index])
    assert torch.equal(dets[:, :4], boxes[kept])


def test_batched_nms_across_classes_and_without():
    boxes, scores, classes = random_boxes(60, seed=8), torch.rand(60), torch.arange(60) % 3
    config = dict(type="nms", iou_threshold=0.4, class_agnostic=True)
    assert batched_nms(boxes, scores, classes, config)[1].tolist() == brute_force(
        boxes, scores, 0.4
    )
    assert (
        batched_nms(boxes, scores, classes, None)[1].tolist()
        == scores.argsort(descending=True).tolist()
    )


def soft_nms_loop(boxes, scores, method, threshold, sigma, min_score, offset):
    """One box at a time, in numpy; the order among equals is mmcv's exchange of places."""
    rows = [
        [*box, score, index] for index, (box, score) in enumerate(zip(boxes, scores, strict=True))
    ]
    place = 0
    while place < len(rows):
        best = place
        for other in range(place + 1, len(rows)):
            if rows[other][4] > rows[best][4]:
                best = other
        rows[place], rows[best] = rows[best], rows[place]
        other = place + 1
        while other < len(rows):
            overlap = iou(np.array(rows[place][:4]), np.array(rows[other][:4]), offset) or 0
            if method == "gaussian":
                rows[other][4] *= np.exp(-(overlap**2) / sigma)
            elif overlap >= threshold:
                rows[other][4] *= 1 - overlap if method == "linear" else 0
            if rows[other][4] < min_score:
                rows[other] = rows[-1]
                rows.pop()
            else:
                other += 1
        place += 1
    return np.array([row[:5] for row in rows]).reshape(-1, 5), [row[5] for row in rows]


@pytest.mark.parametrize("offset", [0, 1])
@pytest.mark.parametrize("ties", [False, True])
@pytest.mark.parametrize("method", ["naive", "linear", "gaussian"])
def test_soft_nms_against_a_loop(method, ties, offset):
    boxes = random_boxes(40, seed=9, dtype=torch.float64)
    scores = torch.rand(40, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    if ties:
        scores = (scores * 4).round() / 4
    settings = dict(iou_threshold=0.3, sigma=0.5, min_score=0.05)
    dets, kept = soft_nms(boxes, scores, method=method, offset=offset, **settings)
    expected = soft_nms_loop(boxes.numpy(), scores.numpy(), method, 0.3, 0.5, 0.05, offset)
    assert kept.tolist() == expected[1]
    np.testing.assert_allclose(dets.numpy(), expected[0], rtol=1e-12)
    assert len(kept) < 40


def test_soft_nms_by_hand():
    """Overlap 0.5: linear halves the score, and the other box, alone, keeps its own."""
    boxes = torch.tensor([[0.0, 0, 2, 1], [0, 0, 1, 1], [5, 5, 6, 6]])
    dets, kept = soft_nms(boxes, torch.tensor([0.9, 0.8, 0.3]), 0.3, method="linear")
    assert kept.tolist() == [0, 1, 2]
    torch.testing.assert_close(dets[:, 4], torch.tensor([0.9, 0.4, 0.3]))
    dets, kept = soft_nms(boxes, torch.tensor([0.9, 0.8, 0.3]), 0.3, method="naive")
    assert kept.tolist() == [0, 2]
    dets, kept = soft_nms(boxes, torch.tensor([0.9, 0.8, 0.3]), 0.3, sigma=1, method="gaussian")
    torch.testing.assert_close(dets[:, 4], torch.tensor([0.9, 0.8 * np.exp(-0.25), 0.3]).float())


@pytest.mark.parametrize("method", ["naive", "linear", "gaussian"])
def test_soft_nms_of_odd_boxes(method):
    nan, inf = float("nan"), float("inf")
    dets, kept = soft_nms(torch.zeros(0, 4), torch.zeros(0), method=method)
    assert dets.shape == (0, 5)
    assert kept.shape == (0,)
    points = torch.tensor([[1.0, 1, 1, 1], [1, 1, 1, 1], [nan, 0, 3, 3], [0, 0, inf, 3]])
    dets, kept = soft_nms(points, torch.tensor([0.9, 0.8, 0.7, nan]), method=method)
    assert kept.tolist() == [0, 1, 2, 3]
    assert dets[:3, 4].tolist() == pytest.approx([0.9, 0.8, 0.7])


def test_soft_nms_leaves_its_input_and_keeps_half_types():
    boxes, scores = random_boxes(10).half(), torch.rand(10).half()
    before = boxes.clone(), scores.clone()
    dets, kept = soft_nms(boxes, scores, 0.3)
    assert dets.dtype == torch.float16
    assert torch.equal(boxes, before[0])
    assert torch.equal(scores, before[1])
    assert torch.equal(dets[:, :4], boxes[kept])


def test_nms_match_groups():
    boxes = torch.tensor(
        [[0.0, 0, 4, 4, 0.5], [0, 0, 4, 3, 0.9], [8, 8, 9, 9, 0.7], [0, 0, 4, 3.5, 0.8]]
    )
    groups = nms_match(boxes, 0.7)
    assert [group.tolist() for group in groups] == [[1, 3, 0], [2]]
    assert [group.tolist() for group in nms_match(boxes.numpy(), 0.75)] == [[1, 3, 0], [2]]
    assert [group.tolist() for group in nms_match(boxes, 0.76)] == [[1, 3], [2], [0]]
    assert nms_match(torch.zeros(0, 5), 0.5) == []
