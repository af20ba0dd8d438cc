r"""PVT-L with softmax attention, trained like its twin.

Command (one machine with 8 GPUs):
torchrun --nproc-per-node 8 tools/train.py \
    configs/classification/softmax-pvt-l_310e_imagenet-224.py

Expected: 81.7 % top-1 (the baseline drawn in arXiv 2501.15061); not measured with this code.
Cost: 61.37 M parameters, 9.80 G multiply-adds per image; training time not measured.
"""

_base_ = "./pola-pvt-l_310e_imagenet-224.py"

model = dict(backbone=dict(attention="softmax"))
