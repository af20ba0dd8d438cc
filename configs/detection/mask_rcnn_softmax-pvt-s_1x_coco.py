r"""Mask R-CNN with softmax PVT-S on COCO, 12 epochs.

Command (one GPU): python tools/train.py configs/detection/mask_rcnn_softmax-pvt-s_1x_coco.py
Command (8 GPUs): torchrun --nproc-per-node 8 tools/train.py \
    configs/detection/mask_rcnn_softmax-pvt-s_1x_coco.py

Expected: 40.4 box AP, 37.8 mask AP (Agent Attention repository); not measured with this code.
Those were trained with learning rate 2e-4 and weight decay 1e-4, here 1e-4 and 0.05.
Cost: 44.14 M parameters; 251.9 G multiply-adds at 800x1344 (backbone, neck, RPN);
training time not measured. Step: 8 x 2 = 16 images at learning rate 1e-4, in proportion for others.
"""

_base_ = "./mask_rcnn_pola-pvt-s_1x_coco.py"

model = dict(backbone=dict(attention="softmax"))
