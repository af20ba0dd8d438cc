"""PolaSwin-nano on 1,797 handwritten digits at 32 pixels: trains on a CPU in about a minute.

Commands:
python tools/prepare_data.py digits
OMP_NUM_THREADS=1 python tools/train.py configs/classification/pola-swin-nano_digits.py

Expected: 98.6 to 99.2 % top-1 after the last epoch (measured, seeds 0, 1, 2; 359 images).
Cost: 1.44 M parameters, 5.1 M multiply-adds per image; 25 epochs take
about 60 s of CPU time with OMP_NUM_THREADS=1.
"""

_base_ = [
    "../_base_/runtime.py",
    "../_base_/tasks/classification.py",
    "../_base_/models/classifier.py",
    "../_base_/datasets/digits.py",
    "../_base_/schedules/digits.py",
]

model = dict(
    backbone=dict(type="polaformer.PolaSwin", arch="nano", img_size=32, drop_path_rate=0.1),
    head=dict(num_classes=10),
)
