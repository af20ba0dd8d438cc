r"""PVT-M with softmax attention, trained like its twin.

Command (one machine with 8 GPUs):
torchrun --nproc-per-node 8 tools/train.py \
    configs/classification/softmax-pvt-m_310e_imagenet-224.py

Expected: 81.2 % top-1 (the baseline drawn in arXiv 2501.15061); not measured with this code.
Cost: 44.21 M parameters, 6.65 G multiply-adds per image; training time not measured.
"""

_base_ = "./pola-pvt-m_310e_imagenet-224.py"

model = dict(backbone=dict(attention="softmax"))
