# Semantic FPN (arXiv 1901.02446): a feature pyramid of 256 channels, each level brought to stride 4
# with 128 channels, and their sum classified. The recipe adds the backbone and the widths of its
# four maps as neck.in_channels. Whole images are tested at once.
model = dict(
    type="polaformer.Segmentor",
    data_preprocessor=dict(
        type="SegDataPreProcessor",
        mean=[123.675, 116.28, 103.53],
        std=[58.395, 57.12, 57.375],
        bgr_to_rgb=True,
        pad_val=0,
        seg_pad_val=255,
        size_divisor=32,
        test_cfg=dict(size_divisor=32),
    ),
    backbone=dict(out_indices=(0, 1, 2, 3), out_norm=True),
    neck=dict(type="FPN", out_channels=256, num_outs=4),
    decode_head=dict(
        type="FPNHead",
        in_channels=[256, 256, 256, 256],
        in_index=[0, 1, 2, 3],
        feature_strides=[4, 8, 16, 32],
        channels=128,
        dropout_ratio=0.1,
        num_classes=150,
        norm_cfg=dict(type="SyncBN", requires_grad=True),
        align_corners=False,
        loss_decode=dict(type="polaformer.PixelCrossEntropy"),
    ),
    test_cfg=dict(mode="whole"),
)
