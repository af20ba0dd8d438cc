r"""Cascade Mask R-CNN with softmax PVT-L on COCO, 36 epochs, multi-scale.

Command: python tools/train.py configs/detection/cascade_mask_rcnn_softmax-pvt-l_3x_coco.py
With 8 GPUs: torchrun --nproc-per-node 8 tools/train.py \
    configs/detection/cascade_mask_rcnn_softmax-pvt-l_3x_coco.py

Expected: not published, not measured.
Cost: 118.86 M parameters; 454.1 G multiply-adds at 800x1344 for backbone, neck and
RPN (the rest depends on the image); training time not measured.
"""

_base_ = "./cascade_mask_rcnn_pola-pvt-l_3x_coco.py"

model = dict(backbone=dict(attention="softmax"))
