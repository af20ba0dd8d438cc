r"""RetinaNet with softmax Swin-B on COCO, 12 epochs.

Command: python tools/train.py configs/detection/retinanet_softmax-swin-b_1x_coco.py
With 8 GPUs: torchrun --nproc-per-node 8 tools/train.py \
    configs/detection/retinanet_softmax-swin-b_1x_coco.py

Expected: not published, not measured.
Cost: 98.39 M parameters; 502.7 G multiply-adds at 800x1344 for backbone, neck and
RetinaNet head (the rest depends on the image); training time not measured.
"""

_base_ = "./retinanet_pola-swin-b_1x_coco.py"

model = dict(backbone=dict(attention="softmax"))
