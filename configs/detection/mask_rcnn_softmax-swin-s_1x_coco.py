r"""Mask R-CNN with softmax Swin-S on COCO, 12 epochs.

Command (one GPU): python tools/train.py configs/detection/mask_rcnn_softmax-swin-s_1x_coco.py
Command (8 GPUs): torchrun --nproc-per-node 8 tools/train.py \
    configs/detection/mask_rcnn_softmax-swin-s_1x_coco.py

Expected: 44.8 box AP, 40.9 mask AP (MLLA repository); not measured with this code.
The Agent Attention repository gives 45.7 and 41.1 for the same architecture and schedule.
Cost: 69.11 M parameters; 302.9 G multiply-adds at 800x1344 (backbone, neck, RPN);
training time not measured. Step: 8 x 2 = 16 images at learning rate 1e-4, in proportion for others.
"""

_base_ = "./mask_rcnn_pola-swin-s_1x_coco.py"

model = dict(backbone=dict(attention="softmax"))
