"""PolaPVT-nano on 1,797 handwritten digits at 32 pixels: trains on a CPU in about a minute.

Commands:
python tools/prepare_data.py digits
OMP_NUM_THREADS=1 python tools/train.py configs/classification/pola-pvt-nano_digits.py

Expected: 98.6 to 99.4 % top-1 after the last epoch (measured, seeds 0, 1, 2; 359 images).
Cost: 0.62 M parameters, 3.9 M multiply-adds per image; 25 epochs take
about 63 s of CPU time with OMP_NUM_THREADS=1.
"""

_base_ = [
    "../_base_/runtime.py",
    "../_base_/tasks/classification.py",
    "../_base_/models/classifier.py",
    "../_base_/datasets/digits.py",
    "../_base_/schedules/digits.py",
]

model = dict(
    backbone=dict(type="polaformer.PolaPVT", arch="nano", img_size=32, drop_path_rate=0.1),
    head=dict(num_classes=10),
)
