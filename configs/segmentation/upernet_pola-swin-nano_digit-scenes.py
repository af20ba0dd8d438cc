"""UperNet with Pola-Swin-nano on scenes of handwritten digits: minutes on a CPU.

Commands:
python tools/prepare_data.py digit-scenes
python tools/train.py configs/segmentation/upernet_pola-swin-nano_digit-scenes.py

Expected: not measured.
Cost: 1.92 M parameters; 0.33 G multiply-adds at 160x160 (backbone, decode head).
"""

_base_ = [
    "../_base_/runtime.py",
    "../_base_/tasks/segmentation.py",
    "../_base_/models/upernet_nano.py",
    "../_base_/datasets/digit_scenes_masks.py",
    "../_base_/schedules/digit_masks.py",
]

model = dict(
    backbone=dict(type="polaformer.PolaSwin", arch="nano", img_size=128),
    decode_head=dict(in_channels=[32, 64, 128, 256]),
    auxiliary_head=dict(in_channels=64),
)
