# 1,797 handwritten digits as class folders; `python tools/prepare_data.py digits` writes them.
# Turned, moved and zoomed a little in training, never mirrored.
train_dataloader = dict(
    batch_size=64,
    num_workers=0,
    sampler=dict(type="polaformer.EpochSampler", shuffle=True),
    collate_fn=dict(type="default_collate"),
    dataset=dict(
        type="polaformer.ImageFolder",
        root="data/digits",
        split="train",
        transforms=dict(
            type="polaformer.ClassificationTransform",
            is_training=True,
            input_size=32,
            auto_augment=None,
            color_jitter=None,
            interpolation="bilinear",
            scale=None,
            hflip=0.0,
            affine=dict(degrees=12, translate=(0.12, 0.12), scale=(0.85, 1.15)),
        ),
    ),
)
val_dataloader = dict(
    batch_size=128,
    num_workers=0,
    sampler=dict(type="polaformer.EpochSampler", shuffle=False),
    collate_fn=dict(type="default_collate"),
    dataset=dict(
        type="polaformer.ImageFolder",
        root="data/digits",
        split="val",
        transforms=dict(
            type="polaformer.ClassificationTransform",
            input_size=32,
            interpolation="bilinear",
            test_crop=False,
        ),
    ),
)
test_dataloader = val_dataloader
val_evaluator = dict(type="polaformer.Accuracy", topk=(1, 5))
test_evaluator = val_evaluator
