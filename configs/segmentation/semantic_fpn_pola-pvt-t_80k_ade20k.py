r"""Semantic FPN with Pola-PVT-T on ADE20K, 80,000 iterations.

Command (one GPU): python tools/train.py configs/segmentation/semantic_fpn_pola-pvt-t_80k_ade20k.py
Command (8 GPUs): torchrun --nproc-per-node 8 tools/train.py \
    configs/segmentation/semantic_fpn_pola-pvt-t_80k_ade20k.py

Expected: not found here, not measured.
Cost: 16.68 M parameters; 33.2 G multiply-adds at 512x512;
training time not measured. Step: 8 x 2 = 16 images at learning rate 1e-4, in proportion for others.
Drop path 0.1 as in PVT's released segmentation code.
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
    backbone=dict(type="polaformer.PolaPVT", arch="tiny", drop_path_rate=0.1),
    neck=dict(in_channels=[64, 128, 320, 512]),
)
