r"""UperNet with Pola-Swin-T on ADE20K, 160,000 iterations.

Command (one GPU): python tools/train.py configs/segmentation/upernet_pola-swin-t_160k_ade20k.py
Command (8 GPUs): torchrun --nproc-per-node 8 tools/train.py \
    configs/segmentation/upernet_pola-swin-t_160k_ade20k.py

Expected: not found here, not measured.
Cost: 60.94 M parameters; 237.4 G multiply-adds at 512x512;
training time not measured. Step: 8 x 2 = 16 images at learning rate 6e-5, in proportion for others.
Drop path 0.3 as in Swin's released configs.
Starts from random weights; published results start from an ImageNet classifier, which is
--cfg-options model.backbone.init_cfg.type=Pretrained model.backbone.init_cfg.checkpoint=FILE
"""

_base_ = [
    "../_base_/runtime.py",
    "../_base_/tasks/segmentation.py",
    "../_base_/models/upernet.py",
    "../_base_/datasets/ade20k.py",
    "../_base_/schedules/160k.py",
]

model = dict(
    backbone=dict(type="polaformer.PolaSwin", arch="tiny", drop_path_rate=0.3),
    decode_head=dict(in_channels=[96, 192, 384, 768]),
    auxiliary_head=dict(in_channels=384),
)
