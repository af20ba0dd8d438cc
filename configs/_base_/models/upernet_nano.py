# UperNet for small pictures and from random weights: 64 channels, group norm (arXiv 1803.08494),
# and a Dice loss (arXiv 1606.04797) beside the cross entropy, because most pixels are background
# and cross entropy alone learns little else.
_base_ = "./upernet.py"

model = dict(
    data_preprocessor=dict(mean=[96.0, 96.0, 96.0], std=[45.0, 45.0, 45.0]),
    decode_head=dict(
        channels=64,
        dropout_ratio=0.0,
        num_classes=11,
        norm_cfg=dict(_delete_=True, type="GN", num_groups=8),
        loss_decode=[
            dict(type="polaformer.PixelCrossEntropy"),
            dict(type="polaformer.PixelDice"),
        ],
    ),
    auxiliary_head=dict(
        channels=64,
        dropout_ratio=0.0,
        num_classes=11,
        norm_cfg=dict(_delete_=True, type="GN", num_groups=8),
    ),
)
