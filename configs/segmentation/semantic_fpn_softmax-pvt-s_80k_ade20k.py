r"""Semantic FPN with softmax PVT-S on ADE20K, 80,000 iterations.

Command (one GPU): python tools/train.py \
    configs/segmentation/semantic_fpn_softmax-pvt-s_80k_ade20k.py
Command (8 GPUs): torchrun --nproc-per-node 8 tools/train.py \
    configs/segmentation/semantic_fpn_softmax-pvt-s_80k_ade20k.py

Expected: 41.9 mIoU (PVT repository); not measured with this code.
The paper (arXiv 2102.12122) has 39.8.
Cost: 28.24 M parameters; 44.5 G multiply-adds at 512x512;
training time not measured. Step: 8 x 2 = 16 images at learning rate 1e-4, in proportion for others.
"""

_base_ = "./semantic_fpn_pola-pvt-s_80k_ade20k.py"

model = dict(backbone=dict(attention="softmax"))
