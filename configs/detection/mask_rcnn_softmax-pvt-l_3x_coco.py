r"""Mask R-CNN with softmax PVT-L on COCO, 36 epochs, multi-scale.

Command (one GPU): python tools/train.py configs/detection/mask_rcnn_softmax-pvt-l_3x_coco.py
Command (8 GPUs): torchrun --nproc-per-node 8 tools/train.py \
    configs/detection/mask_rcnn_softmax-pvt-l_3x_coco.py

Expected: not found here, not measured.
Cost: 81.02 M parameters; 454.1 G multiply-adds at 800x1344 (backbone, neck, RPN);
training time not measured. Step: 8 x 2 = 16 images at learning rate 1e-4, in proportion for others.
"""

_base_ = "./mask_rcnn_pola-pvt-l_3x_coco.py"

model = dict(backbone=dict(attention="softmax"))
