r"""RetinaNet with softmax PVT-M on COCO, 12 epochs.

Command (one GPU): python tools/train.py configs/detection/retinanet_softmax-pvt-m_1x_coco.py
Command (8 GPUs): torchrun --nproc-per-node 8 tools/train.py \
    configs/detection/retinanet_softmax-pvt-m_1x_coco.py

Expected: 41.7 box AP (MMDetection 3.3.0 model zoo); not measured with this code.
Cost: 53.94 M parameters; 396.3 G multiply-adds at 800x1344 (backbone, neck, head);
training time not measured. Step: 8 x 2 = 16 images at learning rate 1e-4, in proportion for others.
"""

_base_ = "./retinanet_pola-pvt-m_1x_coco.py"

model = dict(backbone=dict(attention="softmax"))
