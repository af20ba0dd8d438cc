r"""Semantic FPN with softmax PVT-L on ADE20K, 80,000 iterations.

Command (one GPU): python tools/train.py \
    configs/segmentation/semantic_fpn_softmax-pvt-l_80k_ade20k.py
Command (8 GPUs): torchrun --nproc-per-node 8 tools/train.py \
    configs/segmentation/semantic_fpn_softmax-pvt-l_80k_ade20k.py

Expected: 43.5 mIoU (PVT repository); not measured with this code.
The paper (arXiv 2102.12122) has 42.1; earlier states of the repository (such as commit 00ce6e5)
have no figure of their code for PVT-L.
Cost: 65.12 M parameters; 79.5 G multiply-adds at 512x512;
training time not measured. Step: 8 x 2 = 16 images at learning rate 1e-4, in proportion for others.
"""

_base_ = "./semantic_fpn_pola-pvt-l_80k_ade20k.py"

model = dict(backbone=dict(attention="softmax"))
