r"""Cascade Mask R-CNN with softmax PVT-T on COCO, 36 epochs, multi-scale.

Command (one GPU): python tools/train.py \
    configs/detection/cascade_mask_rcnn_softmax-pvt-t_3x_coco.py
Command (8 GPUs): torchrun --nproc-per-node 8 tools/train.py \
    configs/detection/cascade_mask_rcnn_softmax-pvt-t_3x_coco.py

Expected: not found here, not measured.
Cost: 70.72 M parameters; 182.6 G multiply-adds at 800x1344 (backbone, neck, RPN);
training time not measured. Step: 8 x 2 = 16 images at learning rate 1e-4, in proportion for others.
"""

_base_ = "./cascade_mask_rcnn_pola-pvt-t_3x_coco.py"

model = dict(backbone=dict(attention="softmax"))
