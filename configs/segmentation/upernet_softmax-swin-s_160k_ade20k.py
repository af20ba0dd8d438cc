r"""UperNet with softmax Swin-S on ADE20K, 160,000 iterations.

Command (one GPU): python tools/train.py configs/segmentation/upernet_softmax-swin-s_160k_ade20k.py
Command (8 GPUs): torchrun --nproc-per-node 8 tools/train.py \
    configs/segmentation/upernet_softmax-swin-s_160k_ade20k.py

Expected: 47.6 mIoU (Swin repository); not measured with this code.
With several sizes and mirrored 49.5. MMSegmentation's model zoo has 47.7 and 49.2.
Cost: 81.26 M parameters; 260.6 G multiply-adds at 512x512;
training time not measured. Step: 8 x 2 = 16 images at learning rate 6e-5, in proportion for others.
"""

_base_ = "./upernet_pola-swin-s_160k_ade20k.py"

model = dict(backbone=dict(attention="softmax"))
