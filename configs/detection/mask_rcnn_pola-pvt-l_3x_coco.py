r"""Mask R-CNN with Pola-PVT-L on COCO, 36 epochs, multi-scale.

Command (one GPU): python tools/train.py configs/detection/mask_rcnn_pola-pvt-l_3x_coco.py
Command (8 GPUs): torchrun --nproc-per-node 8 tools/train.py \
    configs/detection/mask_rcnn_pola-pvt-l_3x_coco.py

Expected: not found here, not measured.
Cost: 74.02 M parameters; 354.7 G multiply-adds at 800x1344 (backbone, neck, RPN);
training time not measured. Step: 8 x 2 = 16 images at learning rate 1e-4, in proportion for others.
Drop path 0.2 as in the released 1x configs of Agent-PVT.
Starts from random weights; published results start from an ImageNet classifier, which is
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
    backbone=dict(type="polaformer.PolaPVT", arch="large", drop_path_rate=0.2),
    neck=dict(in_channels=[64, 128, 320, 512]),
)
