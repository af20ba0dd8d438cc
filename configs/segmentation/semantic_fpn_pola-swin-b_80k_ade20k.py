r"""Semantic FPN with Pola-Swin-B on ADE20K, 80,000 iterations.

Command (one GPU): python tools/train.py configs/segmentation/semantic_fpn_pola-swin-b_80k_ade20k.py
Command (8 GPUs): torchrun --nproc-per-node 8 tools/train.py \
    configs/segmentation/semantic_fpn_pola-swin-b_80k_ade20k.py

Expected: not found here, not measured.
Cost: 92.61 M parameters; 109.6 G multiply-adds at 512x512;
training time not measured. Step: 8 x 2 = 16 images at learning rate 1e-4, in proportion for others.
Drop path 0.2 is that of UperNet in Swin's paper; for this head no source was found.
Starts from random weights; published results start from an ImageNet classifier, which is
--cfg-options model.backbone.init_cfg.type=Pretrained model.backbone.init_cfg.checkpoint=FILE
"""

_base_ = [
    "../_base_/runtime.py",
    "../_base_/tasks/segmentation.py",
    "../_base_/models/semantic_fpn.py",
    "../_base_/datasets/ade20k.py",
    "../_base_/schedules/80k.py",
]

model = dict(
    backbone=dict(type="polaformer.PolaSwin", arch="base", drop_path_rate=0.2),
    neck=dict(in_channels=[128, 256, 512, 1024]),
)
