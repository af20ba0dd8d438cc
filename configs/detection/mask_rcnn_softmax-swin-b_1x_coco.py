r"""Mask R-CNN with softmax Swin-B on COCO, 12 epochs.

Command (one GPU): python tools/train.py configs/detection/mask_rcnn_softmax-swin-b_1x_coco.py
Command (8 GPUs): torchrun --nproc-per-node 8 tools/train.py \
    configs/detection/mask_rcnn_softmax-swin-b_1x_coco.py

Expected: not found here, not measured.
Cost: 107.14 M parameters; 452.2 G multiply-adds at 800x1344 (backbone, neck, RPN);
training time not measured. Step: 8 x 2 = 16 images at learning rate 1e-4, in proportion for others.
"""

_base_ = "./mask_rcnn_pola-swin-b_1x_coco.py"

model = dict(backbone=dict(attention="softmax"))
