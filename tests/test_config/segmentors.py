"""Small segmentation models as config text, and masks for them; shared by the tests here."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from PIL import Image

HEAD = """
default_scope = 'mmseg'
runner_type = 'polaformer.Runner'
optim_wrapper = dict(
    constructor='polaformer.OptimConstructor',
    optimizer=dict(type='AdamW', lr=1e-4),
    paramwise_cfg=dict(decay_rule='usual'),
)
auto_scale_lr = dict(enable=True, base_batch_size=4)
param_scheduler = dict(type='polaformer.WarmupPolyLR', warmup_iters=4)
train_cfg = dict(type='polaformer.IterTrainLoop', max_iters=40, val_interval=10)
val_cfg = dict(type='polaformer.ValLoop')
test_cfg = dict(type='polaformer.TestLoop')
"""

DATA = """
train_dataloader = dict(
    batch_size=2,
    sampler=dict(type='polaformer.InfiniteSampler', shuffle=True),
    collate_fn=dict(type='pseudo_collate'),
    dataset=dict(
        type='polaformer.SegmentationDataset',
        data_root='data/toy',
        data_prefix=dict(img_path='train', seg_map_path='train_masks'),
        classes=('ground', 'road', 'car'),
        pipeline=[
            dict(type='polaformer.LoadImage'),
            dict(type='polaformer.LoadMask'),
            dict(type='RandomResize', scale=(96, 64), ratio_range=(0.5, 2.0), keep_ratio=True),
            dict(type='RandomCrop', crop_size=(64, 64), cat_max_ratio=0.75),
            dict(type='RandomFlip', prob=0.5),
            dict(type='PackSegInputs'),
        ],
    ),
)
val_dataloader = dict(
    sampler=dict(type='polaformer.EpochSampler', shuffle=False),
    collate_fn=dict(type='pseudo_collate'),
    dataset=dict(
        type='polaformer.SegmentationDataset',
        data_root='data/toy',
        data_prefix=dict(img_path='val', seg_map_path='val_masks'),
        classes=('ground', 'road', 'car'),
        test_mode=True,
        pipeline=[
            dict(type='polaformer.LoadImage'),
            dict(type='Resize', scale=(96, 64), keep_ratio=True),
            dict(type='polaformer.LoadMask'),
            dict(type='PackSegInputs'),
        ],
    ),
)
test_dataloader = val_dataloader
val_evaluator = test_evaluator = dict(type='polaformer.SegmentationMetric')
"""

_PARTS = """
    data_preprocessor=dict(type='SegDataPreProcessor', mean=[0, 0, 0], std=[1, 1, 1],
                           bgr_to_rgb=True, size_divisor=32),
    backbone=dict(type='polaformer.PolaPVT', arch='nano', out_indices=(0, 1, 2, 3),
                  out_norm=True),
"""

FPN = f"""
model = dict(
    type='polaformer.Segmentor',{_PARTS}
    neck=dict(type='FPN', in_channels=[32, 64, 96, 128], out_channels=16, num_outs=4),
    decode_head=dict(
        type='FPNHead', in_channels=[16, 16, 16, 16], in_index=[0, 1, 2, 3],
        feature_strides=[4, 8, 16, 32], channels=16, num_classes=3,
        norm_cfg=dict(type='BN', requires_grad=True),
        loss_decode=dict(type='polaformer.PixelCrossEntropy')),
    test_cfg=dict(mode='whole'),
)
"""

UPER = f"""
model = dict(
    type='polaformer.Segmentor',{_PARTS}
    decode_head=dict(
        type='UPerHead', in_channels=[32, 64, 96, 128], in_index=[0, 1, 2, 3], channels=16,
        pool_scales=(1, 2, 3, 6), num_classes=3, norm_cfg=dict(type='SyncBN'),
        loss_decode=[dict(type='polaformer.PixelCrossEntropy'),
                     dict(type='DiceLoss', loss_weight=3.0)]),
    auxiliary_head=dict(
        type='FCNHead', in_channels=96, in_index=2, channels=16, num_convs=1,
        concat_input=False, num_classes=3, norm_cfg=dict(type='SyncBN'),
        loss_decode=dict(type='CrossEntropyLoss', loss_weight=0.4)),
    test_cfg=dict(mode='slide', crop_size=(64, 64), stride=(42, 42)),
)
"""


def write_segmentors(tree) -> None:
    """``head.py`` and ``data.py``, and on them ``fpn.py`` and ``uper.py``."""
    tree.write("head.py", HEAD)
    tree.write("data.py", DATA)
    tree.write("fpn.py", f"_base_ = ['head.py', 'data.py']{FPN}")
    tree.write("uper.py", f"_base_ = ['head.py', 'data.py']{UPER}")


def write_masks(root: Path, name: str, images: int = 5, sizes=((96, 64),)) -> None:
    """Images in ``data/toy/<name>`` and masks with classes 0 to 2 in ``<name>_masks``."""
    for folder in (name, f"{name}_masks"):
        (root / "data" / "toy" / folder).mkdir(parents=True, exist_ok=True)
    for index in range(images):
        wide, high = sizes[index % len(sizes)]
        labels = np.arange(wide * high, dtype=np.uint8).reshape(high, wide) % 3
        Image.new("RGB", (wide, high)).save(root / "data" / "toy" / name / f"{index}.png")
        Image.fromarray(labels).save(root / "data" / "toy" / f"{name}_masks" / f"{index}.png")
