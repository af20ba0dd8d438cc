# Mask R-CNN for small pictures and from random weights: four levels of 64 channels, small heads
# with group norm (arXiv 1803.08494), fewer proposals and samples, and anchors of 16 to 128 pixels
# that are as high as wide or twice as high.
_base_ = "./mask_rcnn.py"

model = dict(
    data_preprocessor=dict(mean=[96.0, 96.0, 96.0], std=[45.0, 45.0, 45.0]),
    neck=dict(out_channels=64, num_outs=4, norm_cfg=dict(type="GN", num_groups=8)),
    rpn_head=dict(
        in_channels=64,
        feat_channels=64,
        anchor_generator=dict(scales=[4], ratios=[1.0, 2.0], strides=[4, 8, 16, 32]),
    ),
    roi_head=dict(
        bbox_roi_extractor=dict(roi_layer=dict(sampling_ratio=2), out_channels=64),
        bbox_head=dict(in_channels=64, fc_out_channels=256, num_classes=10),
        mask_roi_extractor=dict(roi_layer=dict(sampling_ratio=2), out_channels=64),
        mask_head=dict(
            num_convs=2,
            in_channels=64,
            conv_out_channels=64,
            num_classes=10,
            norm_cfg=dict(type="GN", num_groups=8),
        ),
    ),
    train_cfg=dict(
        rpn=dict(sampler=dict(num=128)),
        rpn_proposal=dict(nms_pre=500, max_per_img=100),
        rcnn=dict(sampler=dict(num=64)),
    ),
    test_cfg=dict(rpn=dict(nms_pre=300, max_per_img=100)),
)
