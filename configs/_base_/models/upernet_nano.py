# UperNet for small pictures and from random weights: 48 channels, group norm (arXiv 1803.08494), an
# auxiliary head of full weight on the second map, and losses for classes of few pixels (see
# semantic_fpn_nano.py).
_base_ = "./upernet.py"

model = dict(
    data_preprocessor=dict(mean=[96.0, 96.0, 96.0], std=[45.0, 45.0, 45.0]),
    decode_head=dict(
        channels=48,
        dropout_ratio=0.0,
        num_classes=11,
        norm_cfg=dict(_delete_=True, type="GN", num_groups=8),
        loss_decode=[
            dict(type="polaformer.PixelCrossEntropy", background_weight=0.05),
            dict(type="polaformer.PixelDice"),
        ],
    ),
    auxiliary_head=dict(
        in_index=1,
        channels=64,
        dropout_ratio=0.0,
        num_classes=11,
        norm_cfg=dict(_delete_=True, type="GN", num_groups=8),
        loss_decode=dict(background_weight=0.05, loss_weight=1.0),
    ),
)
