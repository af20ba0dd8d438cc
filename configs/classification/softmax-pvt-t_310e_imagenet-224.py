r"""PVT-T with softmax attention, trained like its twin.

Command (one machine with 8 GPUs):
torchrun --nproc-per-node 8 tools/train.py \
    configs/classification/softmax-pvt-t_310e_imagenet-224.py

Expected: 75.1 % top-1 (the baseline drawn in arXiv 2501.15061); not measured with this code.
Cost: 13.23 M parameters, 1.93 G multiply-adds per image; training time not measured.
"""

_base_ = "./pola-pvt-t_310e_imagenet-224.py"

model = dict(backbone=dict(attention="softmax"))
