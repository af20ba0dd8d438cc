# ImageNet-1K at 224: published augmentation; evaluation brings both sides to 256 and crops 224.
# Batch size is per process.
train_dataloader = dict(
    batch_size=128,
    num_workers=8,
    persistent_workers=True,
    pin_memory=True,
    drop_last=True,
    sampler=dict(type="polaformer.EpochSampler", shuffle=True),
    collate_fn=dict(type="default_collate"),
    dataset=dict(
        type="polaformer.ImageNet",
        data_root="data/imagenet",
        split="train",
        transforms=dict(
            type="polaformer.ClassificationTransform",
            is_training=True,
            input_size=224,
            auto_augment="rand-m9-mstd0.5-inc1",
            color_jitter=0.4,
            interpolation="bicubic",
        ),
    ),
)
val_dataloader = dict(
    batch_size=128,
    num_workers=8,
    persistent_workers=True,
    pin_memory=True,
    sampler=dict(type="polaformer.EpochSampler", shuffle=False),
    collate_fn=dict(type="default_collate"),
    dataset=dict(
        type="polaformer.ImageNet",
        data_root="data/imagenet",
        split="val",
        transforms=dict(
            type="polaformer.ClassificationTransform",
            input_size=224,
            resize="squash",
            crop_pct=0.875,
            interpolation="bicubic",
        ),
    ),
)
test_dataloader = val_dataloader
val_evaluator = dict(type="polaformer.Accuracy", topk=(1, 5))
test_evaluator = val_evaluator
