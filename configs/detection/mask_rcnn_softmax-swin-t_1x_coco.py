r"""Mask R-CNN with softmax Swin-T on COCO, 12 epochs.

Command (one GPU): python tools/train.py configs/detection/mask_rcnn_softmax-swin-t_1x_coco.py
Command (8 GPUs): torchrun --nproc-per-node 8 tools/train.py \
    configs/detection/mask_rcnn_softmax-swin-t_1x_coco.py

Expected: 42.7 box AP, 39.3 mask AP (MMDetection 3.3.0 model zoo); not measured with this code.
That was trained with drop path 0.2, here it is 0.1; the Agent Attention repository gives
43.7 and 39.8 for the same architecture and schedule.
Cost: 47.79 M parameters; 208.0 G multiply-adds at 800x1344 (backbone, neck, RPN);
training time not measured. Step: 8 x 2 = 16 images at learning rate 1e-4, in proportion for others.
"""

_base_ = "./mask_rcnn_pola-swin-t_1x_coco.py"

model = dict(backbone=dict(attention="softmax"))
