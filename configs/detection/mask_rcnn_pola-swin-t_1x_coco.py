r"""Mask R-CNN with Pola-Swin-T on COCO.

Command: python tools/train.py configs/detection/mask_rcnn_pola-swin-t_1x_coco.py
"""

_base_ = [
    "../_base_/runtime.py",
    "../_base_/tasks/detection.py",
    "../_base_/models/mask_rcnn.py",
    "../_base_/datasets/coco_instance.py",
    "../_base_/schedules/1x.py",
]

model = dict(
    backbone=dict(type="polaformer.PolaSwin", arch="tiny", drop_path_rate=0.2),
    neck=dict(in_channels=[96, 192, 384, 768]),
)
