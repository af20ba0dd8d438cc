r"""Pola-PVT-L on ImageNet-1K at 224 pixels.

Command (one machine with 8 GPUs):
torchrun --nproc-per-node 8 tools/train.py \
    configs/classification/pola-pvt-l_310e_imagenet-224.py

Expected: not published, not measured.
Cost: 54.37 M parameters, 11.52 G multiply-adds per image; training time not measured.
Step: 8 x 32 = 256 images, so the learning rate is 2.5e-4; it follows the number of processes.
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

model = dict(backbone=dict(type="polaformer.PolaPVT", arch="large", img_size=224))
train_dataloader = dict(batch_size=32)
optim_wrapper = dict(clip_grad=dict(max_norm=1.0))
