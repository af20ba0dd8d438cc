r"""Cascade"""

_base_ = [
    "../_base_/runtime.py",
    "../_base_/tasks/detection.py",
    "../_base_/models/cascade_mask_rcnn.py",
    "../_base_/datasets/coco_instance_ms.py",
    "../_base_/schedules/3x.py",
]

model = dict(
    backbone=dict(type="polaformer.PolaSwin", arch="tiny", drop_path_rate=0.2),
    neck=dict(in_channels=[96, 192, 384, 768]),
)
