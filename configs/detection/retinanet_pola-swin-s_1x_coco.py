r"""RetinaNet with Pola-Swin-S on COCO, 12 epochs.

Command (one GPU): python tools/train.py configs/detection/retinanet_pola-swin-s_1x_coco.py
Command (8 GPUs): torchrun --nproc-per-node 8 tools/train.py \
    configs/detection/retinanet_pola-swin-s_1x_coco.py

Expected: not found here, not measured.
Cost: 60.77 M parameters; 356.9 G multiply-adds at 800x1344 (backbone, neck, head);
training time not measured. Step: 8 x 2 = 16 images at learning rate 1e-4, in proportion for others.
Drop path 0.1 as in the released 1x config of Agent-Swin-S.
Weight decay 1e-4 as in the RetinaNet configs of PVT and PolaFormer++.
Starts from random weights; published results start from an ImageNet classifier, which is
--cfg-options model.backbone.init_cfg.type=Pretrained model.backbone.init_cfg.checkpoint=FILE
"""

_base_ = [
    "../_base_/runtime.py",
    "../_base_/tasks/detection.py",
    "../_base_/models/retinanet.py",
    "../_base_/datasets/coco_detection.py",
    "../_base_/schedules/1x.py",
]

model = dict(
    backbone=dict(type="polaformer.PolaSwin", arch="small", drop_path_rate=0.1),
    neck=dict(in_channels=[192, 384, 768]),
)
optim_wrapper = dict(optimizer=dict(weight_decay=1e-4))
