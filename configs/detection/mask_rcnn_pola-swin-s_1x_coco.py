r"""Mask R-CNN with Pola-Swin-S on COCO, 12 epochs.

Command (one GPU): python tools/train.py configs/detection/mask_rcnn_pola-swin-s_1x_coco.py
Command (8 GPUs): torchrun --nproc-per-node 8 tools/train.py \
    configs/detection/mask_rcnn_pola-swin-s_1x_coco.py

Expected: not found here, not measured.
Cost: 70.11 M parameters; 306.1 G multiply-adds at 800x1344 (backbone, neck, RPN);
training time not measured. Step: 8 x 2 = 16 images at learning rate 1e-4, in proportion for others.
Drop path 0.1 as in the released 1x config of Agent-Swin-S.
Starts from random weights; published results start from an ImageNet classifier, which is
--cfg-options model.backbone.init_cfg.type=Pretrained model.backbone.init_cfg.checkpoint=FILE
"""

_base_ = [
    "../_base_/runtime.py",
    "../_base_/tasks/detection.py",
    "../_base_/models/mask_rcnn.py",
    "../_base_/datasets/coco_instance.py",
    "../_base_/schedules/1x.py",
]

model = dict(
    backbone=dict(type="polaformer.PolaSwin", arch="small", drop_path_rate=0.1),
    neck=dict(in_channels=[96, 192, 384, 768]),
)
