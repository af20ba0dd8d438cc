r"""Pola-Swin-B on ImageNet-1K at 384 pixels, fine-tuned from the 224-pixel model.

Command (one machine with 8 GPUs), after training pola-swin-b_300e_imagenet-224:
torchrun --nproc-per-node 8 tools/train.py \
    configs/classification/pola-swin-b_30e_imagenet-384.py

Expected: not published, not measured.
Cost: 91.60 M parameters, 47.22 G multiply-adds per image; training time not measured.
Step: 8 x 32 = 256 images, so the learning rate is 1e-5; it follows the number of processes.
Position tables are resized in 2-D when the weights are loaded; other weights: load_from=FILE.
Weight decay (1e-8) as published: power, scale, positional_encoding are decayed too. The usual
alternative: --cfg-options optim_wrapper.paramwise_cfg.decay_rule=usual
"""

_base_ = [
    "../_base_/runtime.py",
    "../_base_/tasks/classification.py",
    "../_base_/models/classifier_mix.py",
    "../_base_/datasets/imagenet_384.py",
    "../_base_/schedules/30e.py",
]

model = dict(backbone=dict(type="polaformer.PolaSwin", arch="base", img_size=384))
train_dataloader = dict(batch_size=32)
load_from = "work_dirs/pola-swin-b_300e_imagenet-224/epoch_300.pth"
