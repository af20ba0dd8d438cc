r"""RetinaNet with softmax PVT-S on COCO, 12 epochs.

Command: python tools/train.py configs/detection/retinanet_softmax-pvt-s_1x_coco.py
With 8 GPUs: torchrun --nproc-per-node 8 tools/train.py \
    configs/detection/retinanet_softmax-pvt-s_1x_coco.py

Expected: 40.4 box AP (MMDetection 3.3.0 model zoo); not measured with this code.
Cost: 34.22 M parameters; 303.1 G multiply-adds at 800x1344 for backbone, neck and
RetinaNet head (the rest depends on the image); training time not measured.
"""

_base_ = "./retinanet_pola-pvt-s_1x_coco.py"

model = dict(backbone=dict(attention="softmax"))
