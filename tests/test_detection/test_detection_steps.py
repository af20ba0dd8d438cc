"""Half types, and recipes that use mmdet's own data set and metric."""

from __future__ import annotations

import numpy as np
import pytest
from detection_toy import recipe, results
from tool_runs import TEST, TRAIN, log_of, losses, scalars, tool


@pytest.mark.parametrize("detector", ["retinanet", "mask_rcnn"])
def test_half_types_train_and_validate(det, tmp_path, capfd, detector):
    path = recipe(tmp_path / "r.py", detector, det)
    found = {}
    for amp in ("bf16", "fp16", "fp32"):
        words = (path, "--device", "cpu", "--work-dir", tmp_path / amp)
        words += () if amp == "fp32" else ("--amp", amp)
        ended = tool(capfd, TRAIN, *words, "--cfg-options", "train_cfg.val_begin=2")
        assert ended.code == 0, ended.err
        found[amp] = losses(tmp_path / amp)
        assert len(found[amp]) == 6
        assert np.isfinite(found[amp]).all()
        assert "not finite" not in log_of(tmp_path / amp)
        assert any("val/bbox_mAP" in line for line in scalars(tmp_path / amp))
    firsts = {amp: values[0] for amp, values in found.items()}
    assert len(set(firsts.values())) == 3  # none of the three is another one in silence
    # Rounding changes which regions are proposed and so a part of the loss.
    assert firsts == pytest.approx(dict.fromkeys(firsts, firsts["fp32"]), rel=0.2)


MMDET = """
train_dataloader = dict(
    sampler=dict(_delete_=True, type="DefaultSampler", shuffle=True),
    batch_sampler=dict(type="AspectRatioBatchSampler"),
    dataset=dict(
        _delete_=True,
        type="CocoDataset",
        data_root={data!r},
        ann_file="objects.json",
        data_prefix=dict(img="images/"),
        metainfo=dict(classes=("cat", "dog", "Bird")),
        filter_cfg=dict(filter_empty_gt=True, min_size=8),
        pipeline=[
            dict(type="LoadImageFromFile"),
            dict(type="LoadAnnotations", with_bbox=True, with_mask={masks}),
            dict(type="Resize", scale=(128, 96), keep_ratio=True),
            dict(type="RandomFlip", prob=0.5),
            dict(type="PackDetInputs"),
        ],
    ),
)
val_dataloader = test_dataloader = dict(
    sampler=dict(_delete_=True, type="DefaultSampler", shuffle=False),
    dataset=dict(
        _delete_=True,
        type="CocoDataset",
        data_root={data!r},
        ann_file="objects.json",
        data_prefix=dict(img="images/"),
        metainfo=dict(classes=("cat", "dog", "Bird")),
        test_mode=True,
        pipeline=[
            dict(type="LoadImageFromFile"),
            dict(type="Resize", scale=(128, 96), keep_ratio=True),
            dict(
                type="PackDetInputs",
                meta_keys=("img_id", "img_path", "ori_shape", "img_shape", "scale_factor"),
            ),
        ],
    ),
)
val_evaluator = test_evaluator = dict(
    _delete_=True,
    type="CocoMetric",
    ann_file={data!r} + "/objects.json",
    metric={metric!r},
    classwise=True,
)
"""


@pytest.mark.parametrize("detector", ["retinanet", "mask_rcnn"])
def test_data_and_metric_of_mmdet(det, tmp_path, capfd, detector):
    masks = detector == "mask_rcnn"
    metric = ["bbox", "segm"] if masks else "bbox"
    extra = MMDET.format(data=str(det), masks=masks, metric=metric)
    path = recipe(tmp_path / "r.py", detector, det, extra=extra)
    words = (path, "--device", "cpu", "--work-dir", tmp_path / "run")
    ended = tool(capfd, TRAIN, *words)
    assert ended.code == 0, ended.err
    assert np.isfinite(losses(tmp_path / "run")).all()
    last = scalars(tmp_path / "run")[-1]
    assert "val/coco/bbox_mAP" in last
    assert ("val/coco/segm_mAP" in last) is masks
    ended = tool(capfd, TEST, path, tmp_path / "run", "--device", "cpu")
    assert ended.code == 0, ended.err
    found = results(tmp_path / "run")["metrics"]
    assert found["coco/bbox_mAP"] == last["val/coco/bbox_mAP"]
