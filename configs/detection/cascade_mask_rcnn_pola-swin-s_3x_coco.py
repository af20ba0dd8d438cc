r"""Cascade Mask R-CNN with Pola-Swin-S on COCO, 36 epochs, multi-scale.

Command (one GPU): python tools/train.py configs/detection/cascade_mask_rcnn_pola-swin-s_3x_coco.py
Command (8 GPUs): torchrun --nproc-per-node 8 tools/train.py \
    configs/detection/cascade_mask_rcnn_pola-swin-s_3x_coco.py

Expected: not found here, not measured.
Cost: 107.95 M parameters; 306.1 G multiply-adds at 800x1344 (backbone, neck, RPN);
training time not measured. Step: 8 x 2 = 16 images at learning rate 1e-4, in proportion for others.
Drop path 0.2 as in Swin's released 3x configs.
Starts from random weights; published results start from an ImageNet classifier, which is
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
