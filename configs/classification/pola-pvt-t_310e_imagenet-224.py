r"""Pola-PVT-T on ImageNet-1K at 224 pixels.

Command (one machine with 8 GPUs):
torchrun --nproc-per-node 8 tools/train.py \
    configs/classification/pola-pvt-t_310e_imagenet-224.py

Expected: 78.8 % top-1 (published, arXiv 2501.15061); not measured with this code.
Cost: 12.92 M parameters, 2.26 G multiply-adds per image; training time not measured.
Step: 8 x 128 = 1024 images, so the learning rate is 1e-3; it follows the number of processes.
Weight decay as published: power, scale, positional_encoding, pos_embed are decayed too. The usual
alternative: --cfg-options optim_wrapper.paramwise_cfg.decay_rule=usual
"""

_base_ = [
    "../_base_/runtime.py",
    "../_base_/tasks/classification.py",
    "../_base_/models/classifier_mix.py",
    "../_base_/datasets/imagenet.py",
    "../_base_/schedules/310e.py",
]

model = dict(backbone=dict(type="polaformer.PolaPVT", arch="tiny", img_size=224))
