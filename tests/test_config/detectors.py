"""Small detectors as config text, and COCO data for them; shared by the tests of this folder."""

from __future__ import annotations

import json
from pathlib import Path

from PIL import Image

HEAD = """
default_scope = 'mmdet'
runner_type = 'polaformer.Runner'
optim_wrapper = dict(
    constructor='polaformer.OptimConstructor',
    optimizer=dict(type='AdamW', lr=1e-4),
    paramwise_cfg=dict(decay_rule='usual'),
)
param_scheduler = [
    dict(type='LinearLR', start_factor=0.001, by_epoch=False, begin=0, end=2),
    dict(type='MultiStepLR', by_epoch=True, begin=0, end=12, milestones=[8, 11], gamma=0.1),
]
train_cfg = dict(type='polaformer.EpochTrainLoop', max_epochs=12)
val_cfg = dict(type='polaformer.ValLoop')
"""

DATA = """
train_dataloader = dict(
    batch_size=2,
    sampler=dict(type='polaformer.EpochSampler', shuffle=True),
    batch_sampler=dict(type='AspectRatioBatchSampler'),
    collate_fn=dict(type='pseudo_collate'),
    dataset=dict(
        type='polaformer.CocoDataset',
        data_root='data/toy',
        ann_file='train.json',
        data_prefix=dict(img=''),
        pipeline=[
            dict(type='polaformer.LoadImage'),
            dict(type='LoadAnnotations', with_bbox=True, with_mask=True),
            dict(type='RandomChoiceResize', scales=[(64, 32), (96, 64)], keep_ratio=True),
            dict(type='RandomFlip', prob=0.5),
            dict(type='PackDetInputs'),
        ],
    ),
)
val_dataloader = test_dataloader = dict(
    sampler=dict(type='polaformer.EpochSampler', shuffle=False),
    collate_fn=dict(type='pseudo_collate'),
    dataset=dict(
        type='polaformer.CocoDataset',
        data_root='data/toy',
        ann_file='val.json',
        test_mode=True,
        pipeline=[
            dict(type='polaformer.LoadImage'),
            dict(type='Resize', scale=(96, 64), keep_ratio=True),
            dict(type='PackDetInputs', meta_keys=('img_id', 'img_shape', 'scale_factor')),
        ],
    ),
)
test_cfg = dict(type='polaformer.TestLoop')
val_evaluator = test_evaluator = dict(type='polaformer.CocoMetric', metric=('bbox',))
"""

RETINA = """
model = dict(
    type='RetinaNet',
    data_preprocessor=dict(type='DetDataPreprocessor', mean=[0, 0, 0], std=[1, 1, 1],
                           bgr_to_rgb=True, pad_size_divisor=32),
    backbone=dict(type='polaformer.PolaPVT', arch='nano', out_indices=(1, 2, 3), out_norm=True),
    neck=dict(type='FPN', in_channels=[64, 96, 128], out_channels=32, num_outs=5,
              add_extra_convs='on_input'),
    bbox_head=dict(
        type='RetinaHead', num_classes=2, in_channels=32, feat_channels=32, stacked_convs=1,
        anchor_generator=dict(type='AnchorGenerator', octave_base_scale=4, scales_per_octave=3,
                              ratios=[0.5, 1.0, 2.0], strides=[8, 16, 32, 64, 128]),
        bbox_coder=dict(type='DeltaXYWHBBoxCoder'),
        loss_cls=dict(type='FocalLoss', use_sigmoid=True, gamma=2.0, alpha=0.25),
        loss_bbox=dict(type='L1Loss'),
    ),
    train_cfg=dict(
        assigner=dict(type='MaxIoUAssigner', pos_iou_thr=0.5, neg_iou_thr=0.4, min_pos_iou=0),
        sampler=dict(type='PseudoSampler'),
        allowed_border=-1, pos_weight=-1, debug=False,
    ),
    test_cfg=dict(nms_pre=1000, min_bbox_size=0, score_thr=0.05,
                  nms=dict(type='nms', iou_threshold=0.5), max_per_img=100),
)
"""

_BOX_HEAD = """dict(type='Shared2FCBBoxHead', in_channels=32, fc_out_channels=32,
    roi_feat_size=7, num_classes=2, bbox_coder=dict(type='DeltaXYWHBBoxCoder'),
    loss_cls=dict(type='CrossEntropyLoss'), loss_bbox=dict(type='SmoothL1Loss', beta=1.0))"""
_STAGE = """dict(
    assigner=dict(type='MaxIoUAssigner', pos_iou_thr=0.5, neg_iou_thr=0.5, min_pos_iou=0.5),
    sampler=dict(type='RandomSampler', num=16, pos_fraction=0.25), mask_size=28, pos_weight=-1)"""

CASCADE = f"""
model = dict(
    type='CascadeRCNN',
    data_preprocessor=dict(type='DetDataPreprocessor', pad_size_divisor=32, pad_mask=True),
    backbone=dict(type='polaformer.PolaSwin', arch='nano', out_indices=(0, 1, 2, 3)),
    neck=dict(type='FPN', in_channels=[32, 64, 128, 256], out_channels=32, num_outs=5,
              norm_cfg=dict(type='GN', num_groups=4, requires_grad=True)),
    rpn_head=dict(
        type='RPNHead', in_channels=32, feat_channels=32,
        anchor_generator=dict(type='AnchorGenerator', scales=[8], ratios=[1.0],
                              strides=[4, 8, 16, 32, 64]),
        bbox_coder=dict(type='DeltaXYWHBBoxCoder'),
        loss_cls=dict(type='CrossEntropyLoss', use_sigmoid=True),
        loss_bbox=dict(type='L1Loss'),
    ),
    roi_head=dict(
        type='CascadeRoIHead', num_stages=2, stage_loss_weights=[1, 0.5],
        bbox_roi_extractor=dict(
            type='SingleRoIExtractor',
            roi_layer=dict(type='RoIAlign', output_size=7, sampling_ratio=0),
            out_channels=32, featmap_strides=[4, 8, 16, 32]),
        bbox_head=[{_BOX_HEAD}, {_BOX_HEAD}],
        mask_roi_extractor=dict(
            type='SingleRoIExtractor',
            roi_layer=dict(type='RoIAlign', output_size=14, sampling_ratio=0),
            out_channels=32, featmap_strides=[4, 8, 16, 32]),
        mask_head=dict(type='FCNMaskHead', num_convs=1, in_channels=32, conv_out_channels=32,
                       num_classes=2, loss_mask=dict(type='CrossEntropyLoss', use_mask=True)),
    ),
    train_cfg=dict(
        rpn=dict(assigner=dict(type='MaxIoUAssigner', pos_iou_thr=0.7, neg_iou_thr=0.3),
                 sampler=dict(type='RandomSampler', num=16, pos_fraction=0.5),
                 allowed_border=-1, pos_weight=-1, debug=False),
        rpn_proposal=dict(nms_pre=20, max_per_img=10, nms=dict(type='nms', iou_threshold=0.7),
                          min_bbox_size=0),
        rcnn=[{_STAGE}, {_STAGE}],
    ),
    test_cfg=dict(
        rpn=dict(nms_pre=20, max_per_img=10, nms=dict(type='nms', iou_threshold=0.7),
                 min_bbox_size=0),
        rcnn=dict(score_thr=0.05, nms=dict(type='soft_nms', iou_threshold=0.5, min_score=0.05),
                  max_per_img=100, mask_thr_binary=0.5),
    ),
)
"""


def write_detectors(tree) -> None:
    """``head.py`` and ``data.py``, and on them ``retina.py`` and ``cascade.py``."""
    tree.write("head.py", HEAD)
    tree.write("data.py", DATA)
    tree.write("retina.py", f"_base_ = ['head.py', 'data.py']{RETINA}")
    tree.write("cascade.py", f"_base_ = ['head.py', 'data.py']{CASCADE}")


def write_coco(root: Path, name: str, classes=("cat", "dog"), images: int = 4) -> None:
    """``data/toy/<name>.json`` with one object of each class in every picture."""
    folder = root / "data" / "toy"
    folder.mkdir(parents=True, exist_ok=True)
    content: dict = {"images": [], "annotations": [], "categories": []}
    content["categories"] = [{"id": 7 + i, "name": c} for i, c in enumerate(classes)]
    for index in range(images):
        file = f"{name}_{index}.png"
        Image.new("RGB", (48, 32)).save(folder / file)
        content["images"].append({"id": index, "file_name": file, "width": 48, "height": 32})
        for number in range(len(classes)):
            box = [4 + number, 4, 20, 20]
            content["annotations"].append(
                {
                    "id": len(content["annotations"]),
                    "image_id": index,
                    "category_id": 7 + number,
                    "bbox": box,
                    "area": 400,
                    "iscrowd": 0,
                    "segmentation": [[4, 4, 24, 4, 24, 24, 4, 24]],
                }
            )
    (folder / f"{name}.json").write_text(json.dumps(content))
