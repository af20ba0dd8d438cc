r"""Cascade Mask R-CNN with Pola-Swin-S on COCO, 36 epochs, multi-scale.

Command: python tools/train.py configs/detection/cascade_mask_rcnn_pola-swin-s_3x_coco.py
With 8 GPUs: torchrun --nproc-per-node 8 tools/train.py \
    configs/detection/cascade_mask_rcnn_pola-swin-s_3x_coco.py

Expected: not published, not measured.
Cost: 107.95 M parameters; 306.1 G multiply-adds at 800x1344 for backbone, neck and
RPN (the rest depends on the image); training time not measured.
Settings: drop path 0.2: Swin's released 3x configs.
Starts from random weights; from an ImageNet classifier, as the published results, with
--cfg-options model.backbone.init_cfg.type=Pretrained model.backbone.init_cfg.checkpoint=FILE
"""

_base_ = [
    "../_base_/runtime.py",
    "../_base_/tasks/detection.py",
    "../_base_/models/cascade_mask_rcnn.py",
    "../_base_/datasets/coco_instance_ms.py",
    "../_base_/schedules/3x.py",
]

model = dict(
    backbone=dict(type="polaformer.PolaSwin", arch="small", drop_path_rate=0.2),
    neck=dict(in_channels=[96, 192, 384, 768]),
)
