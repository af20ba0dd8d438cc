r"""RetinaNet with softmax PVT-L on COCO, 12 epochs.

Command (one GPU): python tools/train.py configs/detection/retinanet_softmax-pvt-l_1x_coco.py
Command (8 GPUs): torchrun --nproc-per-node 8 tools/train.py \
    configs/detection/retinanet_softmax-pvt-l_1x_coco.py

Expected: not found here, not measured.
Cost: 71.11 M parameters; 505.3 G multiply-adds at 800x1344 (backbone, neck, head);
training time not measured. Step: 8 x 2 = 16 images at learning rate 1e-4, in proportion for others.
"""

_base_ = "./retinanet_pola-pvt-l_1x_coco.py"

model = dict(backbone=dict(attention="softmax"))
