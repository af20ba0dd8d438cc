"""Detections of several views of a picture become one."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from mmengine.structures import BaseDataElement, InstanceData
from torch import nn

from polaformer.errors import UserError
from polaformer.models import DetectionTTA
from polaformer.registry import MODELS

SIZE = (40, 64)
BOX, OTHER = [8.0, 4.0, 24.5, 14.0], [30.0, 20.0, 60.0, 40.0]
DIRECTIONS = (None, "horizontal", "vertical", "diagonal")


def flipped_box(box, direction) -> list[float]:
    """The box in the flipped picture, corner by corner."""
    x1, y1, x2, y2 = box
    height, width = SIZE
    points = [
        (
            width - x if direction in ("horizontal", "diagonal") else x,
            height - y if direction in ("vertical", "diagonal") else y,
        )
        for x, y in ((x1, y1), (x2, y2))
    ]
    (a, b), (c, d) = points
    return [min(a, c), min(b, d), max(a, c), max(b, d)]


def mask_of(box, corner: bool = True) -> np.ndarray:
    """A filled box without its upper left quarter, so that every flip of it differs."""
    mask = np.zeros(SIZE, dtype=bool)
    x1, y1, x2, y2 = (int(v) for v in box)
    mask[y1:y2, x1:x2] = True
    if corner:
        mask[y1 : (y1 + y2) // 2, x1 : (x1 + x2) // 2] = False
    return mask


def flipped_mask(mask: np.ndarray, direction) -> np.ndarray:
    if direction in ("horizontal", "diagonal"):
        mask = mask[:, ::-1]
    if direction in ("vertical", "diagonal"):
        mask = mask[::-1]
    return mask


def view(boxes, scores, labels, direction=None, masks=None, **meta) -> BaseDataElement:
    """A data sample of a detector; boxes and masks are given in the upright picture."""
    sample = BaseDataElement(
        metainfo={
            "img_id": 7,
            "ori_shape": SIZE,
            "flip": direction is not None,
            "flip_direction": direction,
            **meta,
        }
    )
    found = InstanceData()
    turned = [flipped_box(box, direction) for box in boxes]
    found.bboxes = torch.tensor(turned, dtype=torch.float32).reshape(-1, 4)
    found.scores = torch.tensor(scores, dtype=torch.float32)
    found.labels = torch.tensor(labels, dtype=torch.int64)
    if masks is not None:
        turned = [flipped_mask(mask, direction) for mask in masks]
        found.masks = torch.tensor(np.array(turned, dtype=bool)).reshape(-1, *SIZE)
    sample.pred_instances = found
    return sample


class Stub(nn.Module):
    """A detector that hands back the data samples of its batch; a turned view it does not know."""

    def test_step(self, data: dict) -> list:
        # A cascade head of mmdet would turn the masks of such a view by itself.
        assert not any(sample.flip for sample in data["data_samples"])
        assert all(sample.flip_direction is None for sample in data["data_samples"])
        return data["data_samples"]


def model(**tta_cfg) -> DetectionTTA:
    return MODELS.build(
        dict(type="polaformer.DetectionTTA", module=Stub(), tta_cfg=tta_cfg or None)
    )


def merged(*views, **tta_cfg) -> BaseDataElement:
    """What the model makes of the views of one picture."""
    batch = {"inputs": [[None]] * len(views), "data_samples": [[v] for v in views]}
    (sample,) = model(**tta_cfg).test_step(batch)
    return sample


def test_the_same_box_in_all_views_is_one_with_the_best_score():
    views = [view([BOX], [0.5 + i / 10], [1], way) for i, way in enumerate(DIRECTIONS)]
    sample = merged(*views)
    assert sample.pred_instances.bboxes.tolist() == [BOX]
    assert sample.pred_instances.scores.tolist() == [pytest.approx(0.8)]
    assert sample.pred_instances.labels.tolist() == [1]
    assert sample.img_id == 7
    assert "masks" not in sample.pred_instances


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_flips_are_undone_exactly_masks_too(direction):
    first, second = mask_of(BOX), mask_of(OTHER)
    sample = merged(view([BOX, OTHER], [0.4, 0.9], [0, 2], direction, [first, second]))
    found = sample.pred_instances
    assert found.bboxes.tolist() == [OTHER, BOX]
    assert found.labels.tolist() == [2, 0]
    assert torch.equal(found.masks, torch.tensor(np.array([second, first])))
    assert not sample.flip


def test_each_box_keeps_the_mask_of_its_own_view():
    """The better one of each object comes from another view; masks tell the views apart."""
    whole, cut = mask_of(BOX, corner=False), mask_of(BOX)
    upright = view([BOX, OTHER], [0.9, 0.3], [0, 0], None, [whole, mask_of(OTHER)])
    turned = view(
        [BOX, OTHER], [0.2, 0.8], [0, 0], "horizontal", [cut, mask_of(OTHER, corner=False)]
    )
    found = merged(turned, upright).pred_instances
    assert found.scores.tolist() == [pytest.approx(0.9), pytest.approx(0.8)]
    assert found.bboxes.tolist() == [BOX, OTHER]
    expected = np.array([whole, mask_of(OTHER, corner=False)])
    assert torch.equal(found.masks, torch.tensor(expected))


def test_classes_do_not_suppress_each_other_even_at_negative_coordinates():
    outside = [-100.0, -100.0, 1.0, 1.0]
    boxes, labels = [outside, outside, [-99.0, -100.0, 1.0, 1.0]], [0, 1, 1]
    found = merged(view(boxes, [0.9, 0.8, 0.7], labels)).pred_instances
    assert found.labels.tolist() == [0, 1]


def test_a_box_that_overlaps_less_than_the_threshold_stays():
    """20 x 20 shifted by 10: overlap 1/3."""
    boxes = [[0, 0, 20, 20], [10, 0, 30, 20]]
    for threshold, count in ((0.5, 2), (0.3, 1)):
        nms = dict(type="nms", iou_threshold=threshold)
        found = merged(view(boxes[:1], [0.5], [0]), view(boxes[1:], [0.6], [0]), nms=nms)
        assert len(found.pred_instances) == count


def test_only_the_best_of_all_views_remain():
    boxes = [[10.0 * i, 0.0, 10.0 * i + 5, 5.0] for i in range(5)]
    views = [
        view(boxes[:3], [0.9, 0.1, 0.5], [0, 0, 0], "diagonal"),
        view(boxes[3:], [0.7, 0.3], [1, 1]),
    ]
    found = merged(*views, max_per_img=3).pred_instances
    assert found.scores.tolist() == [pytest.approx(v) for v in (0.9, 0.7, 0.5)]
    assert found.bboxes.tolist() == [boxes[0], boxes[3], boxes[2]]


def test_no_predictions():
    empty = view([], [], [], None, [])
    found = merged(empty, view([], [], [], "horizontal", [])).pred_instances
    assert found.bboxes.shape == (0, 4)
    assert found.masks.shape == (0, *SIZE)
    found = merged(empty, view([BOX], [0.5], [1], "vertical", [mask_of(BOX)])).pred_instances
    assert found.bboxes.tolist() == [BOX]
    assert torch.equal(found.masks[0], torch.tensor(mask_of(BOX)))


def test_numbers_that_are_not_finite_drop_their_box_only():
    odd = view([BOX, [float("nan"), 0, 1, 1]], [float("nan"), 0.9], [0, 0])
    found = merged(odd, view([BOX, OTHER], [0.5, 0.4], [0, 0], "horizontal")).pred_instances
    assert found.bboxes.tolist() == [BOX, OTHER]


def test_several_pictures_at_once():
    batch = {
        "inputs": [[None, None]] * 2,
        "data_samples": [
            [view([BOX], [0.5], [0], img_id=1), view([OTHER], [0.6], [1], img_id=2)],
            [
                view([BOX], [0.7], [0], "horizontal", img_id=1),
                view([OTHER], [0.2], [1], "horizontal", img_id=2),
            ],
        ],
    }
    samples = model().test_step(batch)
    assert [sample.img_id for sample in samples] == [1, 2]
    assert [s.pred_instances.bboxes.tolist() for s in samples] == [[BOX], [OTHER]]
    assert [s.pred_instances.scores.item() for s in samples] == pytest.approx([0.7, 0.6])


def test_views_stay_as_they_were():
    turned = view([BOX], [0.5], [0], "horizontal", [mask_of(BOX)])
    before = turned.pred_instances.bboxes.clone(), turned.pred_instances.masks.clone()
    merged(turned)
    assert torch.equal(turned.pred_instances.bboxes, before[0])
    assert torch.equal(turned.pred_instances.masks, before[1])
    assert turned.flip


def test_a_view_that_hides_its_flip():
    odd = view([BOX], [0.5], [0], "horizontal")
    odd.set_metainfo({"flip_direction": "sideways"})
    with pytest.raises(UserError, match="flip_direction='sideways'"):
        merged(odd)


@pytest.mark.parametrize(
    ("tta_cfg", "text"),
    [
        ({"nms": {"type": "soft_nms"}}, "merges by 'nms' only"),
        ({"nms": {"iou_thr": 0.5}}, "did you mean 'iou_threshold'"),
        ({"nms": {"iou_threshold": 50}}, "a number in 0..1"),
        ({"max_per_image": 100}, "did you mean 'max_per_img'"),
        ({"max_per_img": 0}, "a whole number >= 1"),
    ],
)
def test_wrong_settings(tta_cfg, text):
    with pytest.raises(UserError, match=text):
        model(**tta_cfg)


class FindsBright(nn.Module):
    """Detects the bright rectangle of a view; boxes in the view's picture at its original size."""

    def test_step(self, data: dict) -> list:
        samples = []
        for image, sample in zip(data["inputs"], data["data_samples"], strict=True):
            ys, xs = torch.nonzero(image[0] > 128, as_tuple=True)
            box = torch.stack([xs.min(), ys.min(), xs.max() + 1, ys.max() + 1]).float()
            scale = box.new_tensor(sample.scale_factor).repeat(2)
            found = InstanceData(bboxes=(box / scale)[None])
            found.scores, found.labels = torch.tensor([0.5]), torch.tensor([0])
            sample.pred_instances = found
            samples.append(sample)
        return samples


@pytest.mark.slow
def test_the_views_that_mmdet_makes():
    """Two sizes times four flips of one picture, by mmdet's own transforms."""
    pytest.importorskip("mmdet")
    pytest.importorskip("polaformer.compat.mmcv_ops")
    import mmdet.datasets.transforms  # noqa: F401
    from mmengine.dataset import pseudo_collate
    from mmengine.registry import TRANSFORMS

    image = np.zeros((*SIZE, 3), dtype=np.uint8)
    image[4:14, 8:24] = 255
    flips = [dict(type="mmdet.RandomFlip", prob=0.0)] + [
        dict(type="mmdet.RandomFlip", prob=1.0, direction=way) for way in DIRECTIONS[1:]
    ]
    sizes = [
        dict(type="mmdet.Resize", scale=scale, keep_ratio=True, interpolation="nearest")
        for scale in ((64, 40), (192, 120))
    ]
    views = TRANSFORMS.build(
        dict(
            type="TestTimeAug",
            transforms=[sizes, flips, [dict(type="mmdet.PackDetInputs")]],
        )
    )
    item = {"img": image, "img_shape": SIZE, "ori_shape": SIZE, "img_id": 3, "img_path": "x"}
    batch = pseudo_collate([views(item)])
    assert len(batch["inputs"]) == 8
    (sample,) = DetectionTTA(FindsBright(), dict(max_per_img=5)).test_step(batch)
    assert sample.pred_instances.bboxes.tolist() == [[8.0, 4.0, 24.0, 14.0]]
    assert type(sample).__name__ == "DetDataSample"
    assert sample.to_dict()["img_id"] == 3
