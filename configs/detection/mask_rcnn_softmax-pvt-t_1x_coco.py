r"""Mask R-CNN with softmax PVT-T on COCO, 12 epochs.

Command (one GPU): python tools/train.py configs/detection/mask_rcnn_softmax-pvt-t_1x_coco.py
Command (8 GPUs): torchrun --nproc-per-node 8 tools/train.py \
    configs/detection/mask_rcnn_softmax-pvt-t_1x_coco.py

Expected: 36.7 box AP, 35.1 mask AP (Agent Attention repository); not measured with this code.
Those were trained with learning rate 2e-4 and weight decay 1e-4, here 1e-4 and 0.05.
Cost: 32.88 M parameters; 182.6 G multiply-adds at 800x1344 (backbone, neck, RPN);
training time not measured. Step: 8 x 2 = 16 images at learning rate 1e-4, in proportion for others.
"""

_base_ = "./mask_rcnn_pola-pvt-t_1x_coco.py"

model = dict(backbone=dict(attention="softmax"))
