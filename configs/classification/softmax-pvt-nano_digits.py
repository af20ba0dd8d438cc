"""PVT-nano with softmax attention on the digits, trained like its twin.

Command, after `python tools/prepare_data.py digits`:
python tools/train.py configs/classification/softmax-pvt-nano_digits.py

Expected: @@ % top-1 (measured with this code).
Cost: @@ M parameters, @@ M multiply-adds per image; @@ s for 30 epochs on one CPU core.
"""

_base_ = "./pola-pvt-nano_digits.py"

model = dict(backbone=dict(attention="softmax"))
