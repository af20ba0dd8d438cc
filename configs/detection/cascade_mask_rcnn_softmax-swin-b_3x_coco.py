r"""Cascade Mask R-CNN with softmax Swin-B on COCO, 36 epochs, multi-scale.

Command: python tools/train.py configs/detection/cascade_mask_rcnn_softmax-swin-b_3x_coco.py
With 8 GPUs: torchrun --nproc-per-node 8 tools/train.py \
    configs/detection/cascade_mask_rcnn_softmax-swin-b_3x_coco.py

Expected: 51.9 box AP, 45.0 mask AP (Agent Attention repository); not measured with this code.
Cost: 144.98 M parameters; 452.2 G multiply-adds at 800x1344 for backbone, neck and
RPN (the rest depends on the image); training time not measured.
"""

_base_ = "./cascade_mask_rcnn_pola-swin-b_3x_coco.py"

model = dict(backbone=dict(attention="softmax"))
