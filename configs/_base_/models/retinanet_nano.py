# RetinaNet for small pictures and from random weights: three levels of 64 channels, two
# convolutions a branch, group norm (arXiv 1803.08494), and anchors of 24 to 136 pixels that are as
# high as wide or twice as high.
_base_ = "./retinanet.py"

model = dict(
    data_preprocessor=dict(mean=[96.0, 96.0, 96.0], std=[45.0, 45.0, 45.0]),
    neck=dict(
        out_channels=64,
        add_extra_convs=False,
        num_outs=3,
        norm_cfg=dict(type="GN", num_groups=8),
    ),
    bbox_head=dict(
        in_channels=64,
        feat_channels=64,
        stacked_convs=2,
        num_classes=10,
        norm_cfg=dict(type="GN", num_groups=8),
        anchor_generator=dict(
            octave_base_scale=3,
            scales_per_octave=2,
            ratios=[1.0, 2.0],
            strides=[8, 16, 32],
        ),
    ),
)
