r"""RetinaNet with softmax Swin-T on COCO, 12 epochs.

Command (one GPU): python tools/train.py configs/detection/retinanet_softmax-swin-t_1x_coco.py
Command (8 GPUs): torchrun --nproc-per-node 8 tools/train.py \
    configs/detection/retinanet_softmax-swin-t_1x_coco.py

Expected: not found here, not measured.
Cost: 38.46 M parameters; 258.8 G multiply-adds at 800x1344 (backbone, neck, head);
training time not measured. Step: 8 x 2 = 16 images at learning rate 1e-4, in proportion for others.
"""

_base_ = "./retinanet_pola-swin-t_1x_coco.py"

model = dict(backbone=dict(attention="softmax"))
