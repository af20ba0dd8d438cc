# UperNet (arXiv 1807.10221): pooling pyramid (1, 2, 3, 6) over the last map, a feature pyramid of
# 512 channels, and an auxiliary convolutional head of 256 channels on the third map with 0.4 of the
# weight. The recipe adds the backbone, the widths of its four maps as decode_head.in_channels and
# that of the third as auxiliary_head.in_channels. Whole images are tested at once.
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
    decode_head=dict(
        type="UPerHead",
        in_index=[0, 1, 2, 3],
        pool_scales=(1, 2, 3, 6),
        channels=512,
        dropout_ratio=0.1,
        num_classes=150,
        norm_cfg=dict(type="SyncBN", requires_grad=True),
        align_corners=False,
        loss_decode=dict(type="polaformer.PixelCrossEntropy"),
    ),
    auxiliary_head=dict(
        type="FCNHead",
        in_index=2,
        channels=256,
        num_convs=1,
        concat_input=False,
        dropout_ratio=0.1,
        num_classes=150,
        norm_cfg=dict(type="SyncBN", requires_grad=True),
        align_corners=False,
        loss_decode=dict(type="polaformer.PixelCrossEntropy", loss_weight=0.4),
    ),
    test_cfg=dict(mode="whole"),
)
