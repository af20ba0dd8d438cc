"""Masks, strides and necks of detectors of another make, masks in data, and places of mistakes."""

from __future__ import annotations

import json

import pytest
from detectors import write_coco, write_detectors

from polaformer.config.check import check_file


@pytest.fixture
def detectors(tree):
    write_detectors(tree)
    return tree


def checked(tree, text: str, base: str = "retina", **options):
    tree.write("child.py", f"_base_ = '{base}.py'\n{text}")
    return check_file("child.py", **{"require_data": False, "sizes": False, **options})


ATSS = """
model = dict(type='ATSS', bbox_head=dict(
    _delete_=True, type='ATSSHead', num_classes=2, in_channels=32, feat_channels=32,
    stacked_convs=1, anchor_generator=dict(
        type='AnchorGenerator', ratios=[1.0], octave_base_scale=8, scales_per_octave=1,
        strides=[8, 16, 32, 64, 128]),
    bbox_coder=dict(type='DeltaXYWHBBoxCoder'), loss_cls=dict(type='FocalLoss', use_sigmoid=True),
    loss_bbox=dict(type='GIoULoss'), loss_centerness=dict(type='CrossEntropyLoss')),
    train_cfg=dict(assigner=dict(_delete_=True, type='ATSSAssigner', topk=9)))
"""


def test_masks_of_other_detectors_without_a_mask_head(detectors):
    assert checked(detectors, ATSS).problems == []
    (problem,) = checked(detectors, ATSS + "val_evaluator = dict(metric='segm')").problems
    assert problem.startswith("val_evaluator.metric (child.py:")
    assert "ATSS has no mask head" in problem


RTMDET = """
model = dict(
    type='RTMDet',
    bbox_head=dict(
        _delete_=True, type='RTMDetInsHead', num_classes=2, in_channels=32, feat_channels=32,
        stacked_convs=1, anchor_generator=dict(type='MlvlPointGenerator', offset=0,
                                               strides=[8, 16, 32, 64, 128]),
        bbox_coder=dict(type='DistancePointBBoxCoder'), loss_bbox=dict(type='GIoULoss'),
        loss_cls=dict(type='QualityFocalLoss', use_sigmoid=True), loss_mask=dict(type='DiceLoss')),
    train_cfg=dict(assigner=dict(_delete_=True, type='DynamicSoftLabelAssigner', topk=13)))
val_evaluator = dict(metric='segm')
"""


def test_masks_without_a_part_named_mask_head(detectors):
    assert checked(detectors, RTMDET).problems == []


def test_validation_data_without_a_mask(detectors):
    write_coco(detectors.root, "train")
    write_coco(detectors.root, "val")
    file = detectors.root / "data" / "toy" / "val.json"
    text = "val_evaluator = dict(metric=('bbox', 'segm'))"
    assert checked(detectors, text, "cascade").problems == []
    content = json.loads(file.read_text())
    for annotation in content["annotations"]:
        annotation["segmentation"] = []
    file.write_text(json.dumps(content))
    (problem,) = checked(detectors, text, "cascade").problems
    assert problem.startswith("val_evaluator.metric (child.py:2): 'segm' is asked, but no object")
    assert "val.json has a usable mask" in problem
    assert checked(detectors, "", "cascade").problems == []
    content["annotations"] = []  # nothing to find, so no question of masks
    file.write_text(json.dumps(content))
    assert checked(detectors, text, "cascade").problems == []


@pytest.mark.parametrize("kind", ["LoadAnnotations", "mmdet.LoadAnnotations"])
def test_masks_are_not_loaded_inside_of_another_data_set(detectors, kind):
    text = f"""
train_dataloader = dict(dataset=dict(_delete_=True, type='RepeatDataset', times=2, dataset=dict(
    type='polaformer.CocoDataset', data_root='data/toy', ann_file='train.json',
    pipeline=[dict(type='polaformer.LoadImage'), dict(type='{kind}', with_bbox=True),
              dict(type='PackDetInputs')])))
"""
    (problem,) = checked(detectors, text, "cascade").problems
    assert problem.startswith("train_dataloader.dataset.dataset.pipeline.1 (child.py:5): ")
    assert "add with_mask=True" in problem
    assert checked(detectors, text).problems == []


# Heads and necks of another make ----------------------------------------------------------------

FCOS = """
model = dict(type='FCOS', bbox_head=dict(
    _delete_=True, type='FCOSHead', num_classes=2, in_channels=32, feat_channels=32,
    stacked_convs=1, strides=[8, 16, 32, 64, 128], loss_bbox=dict(type='IoULoss')))
"""


def test_strides_of_a_head_without_anchors(detectors):
    assert checked(detectors, FCOS).problems == []
    wrong = FCOS.replace("[8, 16", "[4, 16")
    (problem,) = checked(detectors, wrong).problems
    assert problem.startswith("model.bbox_head.strides (child.py:5): [4, 16, 32, 64, 128], but")


NECKS = """
model = dict(neck=[
    dict(type='FPN', in_channels=[64, 96, 128], out_channels=32, num_outs=5,
         add_extra_convs='on_input'),
    dict(type='BFP', in_channels=32, num_levels=5, refine_level=2),
])
"""


@pytest.mark.parametrize(
    "old, new, line",
    [
        ("[64, 96, 128]", "[96, 96, 128]", "model.neck.0.in_channels (retina.py:8): [96, 96, 128]"),
        ("num_outs=5", "num_outs=4", "maps of strides [8, 16, 32, 64]; write"),
        (
            "in_channels=32",
            "in_channels=48",
            "model.neck.1.in_channels (retina.py:10): 48, but the neck before it gives 32",
        ),
    ],
)
def test_necks_in_a_row(detectors, old, new, line):
    # mmengine refuses a list over a dict of a base, so this is written into the model's own file.
    base = (detectors.root / "retina.py").read_text()
    first, _, rest = base.partition("    neck=dict(")
    rest = rest.partition("    bbox_head")[2]
    listed = NECKS.replace(old, new)
    listed = listed.partition("dict(neck=")[2].rpartition(")")[0]
    detectors.write("retina.py", f"{first}    neck={listed},\n    bbox_head{rest}")
    found = checked(detectors, "", sizes=True).problems
    assert any(line in problem for problem in found), found
    assert len(found) == 1 or "num_outs" in new


# Places ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "base, text, key",
    [
        (
            "cascade",
            "model = dict(roi_head=dict(bbox_head=[dict(type='Shared2FCBBoxHead', in_chanels=32)"
            " for _ in range(2)]))",
            "model.roi_head.bbox_head.0.in_chanels (child.py:2)",
        ),
        (
            "retina",
            "classes = ('dog', 'cat')\nval_dataloader = test_dataloader = dict(\n"
            "    dataset=dict(classes=('cat', 'dog')))",
            "val_dataloader.dataset.classes (child.py:4): other names, but 'classes'",
        ),
    ],
)
def test_one_line_is_told_once(detectors, base, text, key):
    write_coco(detectors.root, "train")
    write_coco(detectors.root, "val")
    (problem,) = checked(detectors, text, base).problems
    assert problem.startswith(key)


def test_the_users_own_line_is_named_beside_that_of_the_base(detectors):
    (problem,) = checked(detectors, "model=dict(neck=dict(num_outs=4))").problems
    assert problem.startswith("model.bbox_head.anchor_generator.strides (retina.py:12): ")
    assert problem.endswith(" (or change model.neck.num_outs at child.py:2)")
