r"""UperNet with softmax Swin-B on ADE20K at 640x640, 160,000 iterations.

Command (one GPU): python tools/train.py \
    configs/segmentation/upernet_softmax-swin-b_160k_ade20k-640.py
Command (8 GPUs): torchrun --nproc-per-node 8 tools/train.py \
    configs/segmentation/upernet_softmax-swin-b_160k_ade20k-640.py

Expected: 50.0 mIoU (CSWin paper, arXiv 2107.00652); not measured with this code.
That is from ImageNet-22K weights; with several sizes and mirrored 51.7 (Swin's paper: 51.6).
Cost: 121.28 M parameters; 461.4 G multiply-adds at 640x640;
training time not measured. Step: 8 x 2 = 16 images at learning rate 6e-5, in proportion for others.
"""

_base_ = "./upernet_pola-swin-b_160k_ade20k-640.py"

model = dict(backbone=dict(attention="softmax"))
