r"""Pola-PVT-M on ImageNet-1K at 224 pixels.

Command (one machine with 8 GPUs):
torchrun --nproc-per-node 8 tools/train.py \
    configs/classification/pola-pvt-m_310e_imagenet-224.py

Expected: not published, not measured.
Cost: 39.96 M parameters, 7.81 G multiply-adds per image; training time not measured.
Step: 8 x 64 = 512 images, so the learning rate is 5e-4; it follows the number of processes.
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

model = dict(backbone=dict(type="polaformer.PolaPVT", arch="medium", img_size=224))
train_dataloader = dict(batch_size=64)
optim_wrapper = dict(clip_grad=dict(max_norm=1.0))
