r"""Semantic FPN with softmax Swin-B on ADE20K, 80,000 iterations.

Command (one GPU): python tools/train.py \
    configs/segmentation/semantic_fpn_softmax-swin-b_80k_ade20k.py
Command (8 GPUs): torchrun --nproc-per-node 8 tools/train.py \
    configs/segmentation/semantic_fpn_softmax-swin-b_80k_ade20k.py

Expected: 46.0 mIoU (CSWin paper, arXiv 2107.00652); not measured with this code.
Cost: 91.24 M parameters; 108.8 G multiply-adds at 512x512;
training time not measured. Step: 8 x 2 = 16 images at learning rate 1e-4, in proportion for others.
"""

_base_ = "./semantic_fpn_pola-swin-b_80k_ade20k.py"

model = dict(backbone=dict(attention="softmax"))
