r"""A timm backbone under the same recipe: PVTv2-B0 on ImageNet-1K at 224 pixels.

Command (one machine with 8 GPUs):
torchrun --nproc-per-node 8 tools/train.py \
    configs/classification/timm-pvtv2-b0_310e_imagenet-224.py

Expected: not measured. Any other timm model with features_only support goes the same way.
Cost: 3.67 M parameters, 0.57 G multiply-adds per image; training time not measured.
Step: 8 x 128 = 1024 images, so the learning rate is 1e-3; it follows the number of processes.
Weight decay: 1-D tensors, biases and what timm itself names are exempt.
"""

_base_ = [
    "../_base_/runtime.py",
    "../_base_/tasks/classification.py",
    "../_base_/models/classifier_mix.py",
    "../_base_/datasets/imagenet.py",
    "../_base_/schedules/310e.py",
]

model = dict(backbone=dict(type="polaformer.TimmBackbone", model_name="pvt_v2_b0"))
