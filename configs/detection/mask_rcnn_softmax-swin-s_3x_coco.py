r"""Mask R-CNN with softmax Swin-S on COCO, 36 epochs, multi-scale.

Command: python tools/train.py configs/detection/mask_rcnn_softmax-swin-s_3x_coco.py
With 8 GPUs: torchrun --nproc-per-node 8 tools/train.py \
    configs/detection/mask_rcnn_softmax-swin-s_3x_coco.py

Expected: 48.2 box AP, 43.2 mask AP (MMDetection 3.3.0 model zoo); not measured with this code.
Cost: 69.11 M parameters; 302.9 G multiply-adds at 800x1344 for backbone, neck and
RPN (the rest depends on the image); training time not measured.
"""

_base_ = "./mask_rcnn_pola-swin-s_3x_coco.py"

model = dict(backbone=dict(attention="softmax"))
