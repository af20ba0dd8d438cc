r"""Mask R-CNN with softmax PVT-M on COCO, 12 epochs.

Command: python tools/train.py configs/detection/mask_rcnn_softmax-pvt-m_1x_coco.py
With 8 GPUs: torchrun --nproc-per-node 8 tools/train.py \
    configs/detection/mask_rcnn_softmax-pvt-m_1x_coco.py

Expected: 42.0 box AP, 39.0 mask AP (Agent Attention repository); not measured with this code.
Cost: 63.86 M parameters; 345.1 G multiply-adds at 800x1344 for backbone, neck and
RPN (the rest depends on the image); training time not measured.
"""

_base_ = "./mask_rcnn_pola-pvt-m_1x_coco.py"

model = dict(backbone=dict(attention="softmax"))
