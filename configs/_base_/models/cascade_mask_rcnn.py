# Cascade Mask R-CNN (arXiv 1712.00726) as Swin trains it (arXiv 2103.14030, section 4.2, and its
# released configs): over Mask R-CNN, three box heads of four convolutions and one linear layer with
# batch norm, GIoU loss on decoded boxes. The norm is taken over all processes (on CPUs over the
# images of each process).
_base_ = "./mask_rcnn.py"

_boxes = [
    # IoU from which a proposal counts as an object, and the spread of the box offsets.
    (0.5, [0.1, 0.1, 0.2, 0.2]),
    (0.6, [0.05, 0.05, 0.1, 0.1]),
    (0.7, [0.033, 0.033, 0.067, 0.067]),
]
model = dict(
    type="CascadeRCNN",
    rpn_head=dict(loss_bbox=dict(_delete_=True, type="SmoothL1Loss", beta=1 / 9)),
    roi_head=dict(
        type="CascadeRoIHead",
        num_stages=3,
        stage_loss_weights=[1, 0.5, 0.25],
        bbox_head=[
            dict(
                type="ConvFCBBoxHead",
                num_shared_convs=4,
                num_shared_fcs=1,
                in_channels=256,
                conv_out_channels=256,
                fc_out_channels=1024,
                roi_feat_size=7,
                num_classes=80,
                bbox_coder=dict(type="DeltaXYWHBBoxCoder", target_stds=spread),
                reg_class_agnostic=False,
                reg_decoded_bbox=True,
                norm_cfg=dict(type="BN"),
                loss_cls=dict(type="CrossEntropyLoss"),
                loss_bbox=dict(type="GIoULoss", loss_weight=10.0),
            )
            for _, spread in _boxes
        ],
    ),
    train_cfg=dict(
        rpn_proposal=dict(max_per_img=2000),
        rcnn=[
            dict(
                assigner=dict(
                    type="MaxIoUAssigner",
                    pos_iou_thr=iou,
                    neg_iou_thr=iou,
                    min_pos_iou=iou,
                    match_low_quality=False,
                    ignore_iof_thr=-1,
                ),
                sampler=dict(type="RandomSampler", num=512, pos_fraction=0.25),
                mask_size=28,
                pos_weight=-1,
                debug=False,
            )
            for iou, _ in _boxes
        ],
    ),
)
sync_bn = "torch"
