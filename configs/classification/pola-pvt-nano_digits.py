"""PolaPVT-nano on 1,797 handwritten digits at 32 pixels: trains on a CPU in about a minute.

Commands:
python tools/prepare_data.py digits
python tools/train.py configs/classification/pola-pvt-nano_digits.py

Expected: @@ % top-1 (measured with this code).
Cost: @@ M parameters, @@ M multiply-adds per image; @@ s for 30 epochs on one CPU core.
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
