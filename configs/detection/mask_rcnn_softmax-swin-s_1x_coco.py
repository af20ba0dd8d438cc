r"""Mask R-CNN with softmax Swin-S on COCO, 12 epochs.

Command: python tools/train.py configs/detection/mask_rcnn_softmax-swin-s_1x_coco.py
With 8 GPUs: torchrun --nproc-per-node 8 tools/train.py \
    configs/detection/mask_rcnn_softmax-swin-s_1x_coco.py

Expected: 44.8 box AP, 40.9 mask AP (MLLA repository); not measured with this code.
Cost: 69.11 M parameters; 302.9 G multiply-adds at 800x1344 for backbone, neck and
RPN (the rest depends on the image); training time not measured.
"""

_base_ = "./mask_rcnn_pola-swin-s_1x_coco.py"

model = dict(backbone=dict(attention="softmax"))
