r"""Mask R-CNN with softmax PVT-S on COCO, 12 epochs.

Command: python tools/train.py configs/detection/mask_rcnn_softmax-pvt-s_1x_coco.py
With 8 GPUs: torchrun --nproc-per-node 8 tools/train.py \
    configs/detection/mask_rcnn_softmax-pvt-s_1x_coco.py

Expected: 40.4 box AP, 37.8 mask AP (Agent Attention repository); not measured with this code.
Cost: 44.14 M parameters; 251.9 G multiply-adds at 800x1344 for backbone, neck and
RPN (the rest depends on the image); training time not measured.
"""

_base_ = "./mask_rcnn_pola-pvt-s_1x_coco.py"

model = dict(backbone=dict(attention="softmax"))
