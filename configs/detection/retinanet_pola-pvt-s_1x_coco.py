r"""RetinaNet with Pola-PVT-S on COCO, 12 epochs.

Command: python tools/train.py configs/detection/retinanet_pola-pvt-s_1x_coco.py
With 8 GPUs: torchrun --nproc-per-node 8 tools/train.py \
    configs/detection/retinanet_pola-pvt-s_1x_coco.py

Expected: not published, not measured.
Cost: 32.90 M parameters; 254.9 G multiply-adds at 800x1344 for backbone, neck and
RetinaNet head (the rest depends on the image); training time not measured.
Settings: RetinaNet's weight decay 1e-4 as in PVT's and PolaFormer++'s released configs;
drop path 0.1: PVT's (its released detection code).
Starts from random weights; from an ImageNet classifier, as the published results, with
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
    backbone=dict(type="polaformer.PolaPVT", arch="small", drop_path_rate=0.1),
    neck=dict(in_channels=[128, 320, 512]),
)
optim_wrapper = dict(optimizer=dict(weight_decay=1e-4))
