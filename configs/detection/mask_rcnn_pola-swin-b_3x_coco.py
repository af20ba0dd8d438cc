r"""Mask R-CNN with Pola-Swin-B on COCO, 36 epochs, multi-scale.

Command: python tools/train.py configs/detection/mask_rcnn_pola-swin-b_3x_coco.py
With 8 GPUs: torchrun --nproc-per-node 8 tools/train.py \
    configs/detection/mask_rcnn_pola-swin-b_3x_coco.py

Expected: not published, not measured.
Cost: 108.51 M parameters; 457.5 G multiply-adds at 800x1344 for backbone, neck and
RPN (the rest depends on the image); training time not measured.
Settings: drop path 0.3: Swin's released 3x configs.
Starts from random weights; from an ImageNet classifier, as the published results, with
--cfg-options model.backbone.init_cfg.type=Pretrained model.backbone.init_cfg.checkpoint=FILE
"""

_base_ = [
    "../_base_/runtime.py",
    "../_base_/tasks/detection.py",
    "../_base_/models/mask_rcnn.py",
    "../_base_/datasets/coco_instance_ms.py",
    "../_base_/schedules/3x.py",
]

model = dict(
    backbone=dict(type="polaformer.PolaSwin", arch="base", drop_path_rate=0.3),
    neck=dict(in_channels=[128, 256, 512, 1024]),
)
