r"""UperNet with softmax PVT-L on ADE20K, 160,000 iterations.

Command (one GPU): python tools/train.py configs/segmentation/upernet_softmax-pvt-l_160k_ade20k.py
Command (8 GPUs): torchrun --nproc-per-node 8 tools/train.py \
    configs/segmentation/upernet_softmax-pvt-l_160k_ade20k.py

Expected: not found here, not measured.
Cost: 91.34 M parameters; 268.7 G multiply-adds at 512x512;
training time not measured. Step: 8 x 2 = 16 images at learning rate 6e-5, in proportion for others.
"""

_base_ = "./upernet_pola-pvt-l_160k_ade20k.py"

model = dict(backbone=dict(attention="softmax"))
