r"""Swin-S with softmax attention, trained like its twin.

Command (one machine with 8 GPUs):
torchrun --nproc-per-node 8 tools/train.py \
    configs/classification/softmax-swin-s_300e_imagenet-224.py

Expected: 83.0 % top-1 (the baseline drawn in arXiv 2501.15061); not measured with this code.
Cost: 49.61 M parameters, 8.74 G multiply-adds per image; training time not measured.
"""

_base_ = "./pola-swin-s_300e_imagenet-224.py"

model = dict(backbone=dict(attention="softmax"))
