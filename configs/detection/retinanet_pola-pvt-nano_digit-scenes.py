"""RetinaNet with Pola-PVT-nano on scenes of handwritten digits: minutes on a CPU.

Commands:
python tools/prepare_data.py digit-scenes
OMP_NUM_THREADS=1 python tools/train.py configs/detection/retinanet_pola-pvt-nano_digit-scenes.py

Expected: box AP50 93.3 and 93.6, box AP 72.5 and 72.9 after the last epoch (measured, seeds 0 and
1; 200 scenes, on which sizes and schedule were chosen).
Cost: 1.05 M parameters; 0.21 G multiply-adds at 160x160 (backbone, neck, head); 8 epochs take about
440 s of CPU time with OMP_NUM_THREADS=1, validation included.
"""

_base_ = [
    "../_base_/runtime.py",
    "../_base_/tasks/detection.py",
    "../_base_/models/retinanet_nano.py",
    "../_base_/datasets/digit_scenes.py",
    "../_base_/schedules/digit_scenes.py",
]

model = dict(
    backbone=dict(type="polaformer.PolaPVT", arch="nano", img_size=128),
    neck=dict(in_channels=[64, 96, 128]),
)
