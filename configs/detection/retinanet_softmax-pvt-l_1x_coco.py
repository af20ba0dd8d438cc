r"""RetinaNet with softmax PVT-L on COCO, 12 epochs.

Command: python tools/train.py configs/detection/retinanet_softmax-pvt-l_1x_coco.py
With 8 GPUs: torchrun --nproc-per-node 8 tools/train.py \
    configs/detection/retinanet_softmax-pvt-l_1x_coco.py

Expected: not published, not measured.
Cost: 71.11 M parameters; 505.3 G multiply-adds at 800x1344 for backbone, neck and
RetinaNet head (the rest depends on the image); training time not measured.
"""

_base_ = "./retinanet_pola-pvt-l_1x_coco.py"

model = dict(backbone=dict(attention="softmax"))
