"""RetinaNet with Pola-Swin-nano on scenes of handwritten digits: minutes on a CPU.

Commands:
python tools/prepare_data.py digit-scenes
OMP_NUM_THREADS=1 python tools/train.py configs/detection/retinanet_pola-swin-nano_digit-scenes.py

Expected: box AP50 93.0, box AP 72.4 after the last epoch (measured, seed 0; 200 scenes, on which
sizes and schedule were chosen).
Cost: 1.80 M parameters; 0.26 G multiply-adds at 160x160 (backbone, neck, head); 8 epochs take about
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
    backbone=dict(type="polaformer.PolaSwin", arch="nano", img_size=128),
    neck=dict(in_channels=[64, 128, 256]),
)
