r"""Swin-B with softmax attention at 384 pixels, fine-tuned like its twin.

Command (one machine with 8 GPUs), after training softmax-swin-b_300e_imagenet-224:
torchrun --nproc-per-node 8 tools/train.py \
    configs/classification/softmax-swin-b_30e_imagenet-384.py

Expected: not measured.
Cost: 87.90 M parameters, 47.08 G multiply-adds per image; training time not measured.
"""

_base_ = "./pola-swin-b_30e_imagenet-384.py"

model = dict(backbone=dict(attention="softmax"))
load_from = "work_dirs/softmax-swin-b_300e_imagenet-224/epoch_300.pth"
