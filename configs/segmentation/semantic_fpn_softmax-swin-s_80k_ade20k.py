r"""Semantic FPN with softmax Swin-S on ADE20K, 80,000 iterations.

Command (one GPU): python tools/train.py \
    configs/segmentation/semantic_fpn_softmax-swin-s_80k_ade20k.py
Command (8 GPUs): torchrun --nproc-per-node 8 tools/train.py \
    configs/segmentation/semantic_fpn_softmax-swin-s_80k_ade20k.py

Expected: 45.2 mIoU (CSWin paper, arXiv 2107.00652); not measured with this code.
Cost: 53.21 M parameters; 70.9 G multiply-adds at 512x512;
training time not measured. Step: 8 x 2 = 16 images at learning rate 1e-4, in proportion for others.
"""

_base_ = "./semantic_fpn_pola-swin-s_80k_ade20k.py"

model = dict(backbone=dict(attention="softmax"))
