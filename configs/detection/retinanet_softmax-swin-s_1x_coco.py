r"""RetinaNet with softmax Swin-S on COCO, 12 epochs.

Command: python tools/train.py configs/detection/retinanet_softmax-swin-s_1x_coco.py
With 8 GPUs: torchrun --nproc-per-node 8 tools/train.py \
    configs/detection/retinanet_softmax-swin-s_1x_coco.py

Expected: not published, not measured.
Cost: 59.78 M parameters; 353.7 G multiply-adds at 800x1344 for backbone, neck and
RetinaNet head (the rest depends on the image); training time not measured.
"""

_base_ = "./retinanet_pola-swin-s_1x_coco.py"

model = dict(backbone=dict(attention="softmax"))
