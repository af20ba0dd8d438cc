"""Mask R-CNN with Pola-Swin-nano on scenes of handwritten digits: minutes on a CPU.

Commands:
python tools/prepare_data.py digit-scenes
OMP_NUM_THREADS=1 python tools/train.py configs/detection/mask_rcnn_pola-swin-nano_digit-scenes.py

Expected: box AP50 93.2, mask AP50 93.1, box AP 68.6, mask AP 67.9 after the last epoch (measured,
seed 0; 200 scenes, on which sizes and schedule were chosen).
Cost: 2.67 M parameters; 0.31 G multiply-adds at 160x160 (backbone, neck, dense head); 6 epochs take
about 700 s of CPU time with OMP_NUM_THREADS=1, validation included.
"""

_base_ = [
    "../_base_/runtime.py",
    "../_base_/tasks/detection.py",
    "../_base_/models/mask_rcnn_nano.py",
    "../_base_/datasets/digit_scenes_instance.py",
    "../_base_/schedules/digit_scenes.py",
]

model = dict(
    backbone=dict(type="polaformer.PolaSwin", arch="nano", img_size=128),
    neck=dict(in_channels=[32, 64, 128, 256]),
)
train_cfg = dict(max_epochs=6)
param_scheduler = dict(T_max=6)
