r"""UperNet with softmax Swin-T on ADE20K, 160,000 iterations.

Command (one GPU): python tools/train.py configs/segmentation/upernet_softmax-swin-t_160k_ade20k.py
Command (8 GPUs): torchrun --nproc-per-node 8 tools/train.py \
    configs/segmentation/upernet_softmax-swin-t_160k_ade20k.py

Expected: 44.5 mIoU (Swin repository); not measured with this code.
With several sizes and mirrored 45.8. MMSegmentation's model zoo has 44.4 and 45.8.
Cost: 59.94 M parameters; 236.9 G multiply-adds at 512x512;
training time not measured. Step: 8 x 2 = 16 images at learning rate 6e-5, in proportion for others.
"""

_base_ = "./upernet_pola-swin-t_160k_ade20k.py"

model = dict(backbone=dict(attention="softmax"))
