r"""RetinaNet with Pola-PVT-T on COCO.

Command: python tools/train.py configs/detection/retinanet_pola-pvt-t_1x_coco.py
"""

_base_ = [
    "../_base_/runtime.py",
    "../_base_/tasks/detection.py",
    "../_base_/models/retinanet.py",
    "../_base_/datasets/coco_detection.py",
    "../_base_/schedules/1x.py",
]

model = dict(
    backbone=dict(type="polaformer.PolaPVT", arch="tiny", drop_path_rate=0.1),
    neck=dict(in_channels=[128, 320, 512]),
)
optim_wrapper = dict(optimizer=dict(weight_decay=1e-4))
