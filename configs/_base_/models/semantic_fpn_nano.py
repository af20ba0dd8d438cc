# Semantic FPN for small pictures and from random weights: 64 channels, group norm
# (arXiv 1803.08494). Most pixels are background, and plain cross entropy would learn little else:
# a pixel of background has a tenth of the weight, and a Dice loss (arXiv 1606.04797), to which all
# classes are equal, keeps the edges in place.
_base_ = "./semantic_fpn.py"

model = dict(
    data_preprocessor=dict(mean=[96.0, 96.0, 96.0], std=[45.0, 45.0, 45.0]),
    neck=dict(out_channels=64, norm_cfg=dict(type="GN", num_groups=8)),
    decode_head=dict(
        in_channels=[64, 64, 64, 64],
        channels=64,
        dropout_ratio=0.0,
        num_classes=11,
        norm_cfg=dict(_delete_=True, type="GN", num_groups=8),
        loss_decode=[
            dict(type="polaformer.PixelCrossEntropy", background_weight=0.1),
            dict(type="polaformer.PixelDice"),
        ],
    ),
)
