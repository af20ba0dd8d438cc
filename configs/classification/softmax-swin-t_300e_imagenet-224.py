r"""Swin-T with softmax attention, trained like its twin.

Command (one machine with 8 GPUs):
torchrun --nproc-per-node 8 tools/train.py \
    configs/classification/softmax-swin-t_300e_imagenet-224.py

Expected: 81.2 % top-1 (the baseline drawn in arXiv 2501.15061); not measured with this code.
Cost: 28.29 M parameters, 4.49 G multiply-adds per image; training time not measured.
"""

_base_ = "./pola-swin-t_300e_imagenet-224.py"

model = dict(backbone=dict(attention="softmax"))
