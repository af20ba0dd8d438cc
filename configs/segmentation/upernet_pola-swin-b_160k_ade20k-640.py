r"""UperNet with Pola-Swin-B on ADE20K at 640x640, 160,000 iterations.

Command (one GPU): python tools/train.py configs/segmentation/upernet_pola-swin-b_160k_ade20k-640.py
Command (8 GPUs): torchrun --nproc-per-node 8 tools/train.py \
    configs/segmentation/upernet_pola-swin-b_160k_ade20k-640.py

Expected: not found here, not measured.
Cost: 122.65 M parameters; 463.3 G multiply-adds at 640x640;
training time not measured. Step: 8 x 2 = 16 images at learning rate 6e-5, in proportion for others.
Drop path 0.3 as in Swin's released configs.
Starts from random weights; published results start from an ImageNet-22K classifier, which is
--cfg-options model.backbone.init_cfg.type=Pretrained model.backbone.init_cfg.checkpoint=FILE
"""

_base_ = [
    "../_base_/runtime.py",
    "../_base_/tasks/segmentation.py",
    "../_base_/models/upernet.py",
    "../_base_/datasets/ade20k_640.py",
    "../_base_/schedules/160k.py",
]

model = dict(
    backbone=dict(type="polaformer.PolaSwin", arch="base", drop_path_rate=0.3),
    decode_head=dict(in_channels=[128, 256, 512, 1024]),
    auxiliary_head=dict(in_channels=512),
)
