# Scenes of handwritten digits with boxes; `python tools/prepare_data.py digit-scenes` writes them.
# Trained at 0.8 to 1.25 times their own sizes, which differ, validated at 1.1; never mirrored.
train_dataloader = dict(
    batch_size=4,
    num_workers=0,
    sampler=dict(type="polaformer.EpochSampler", shuffle=True),
    collate_fn=dict(type="pseudo_collate"),
    dataset=dict(
        type="polaformer.CocoDataset",
        data_root="data/digit_scenes",
        ann_file="annotations/train.json",
        data_prefix=dict(img="train/"),
        pipeline=[
            dict(type="polaformer.LoadImage"),
            dict(type="LoadAnnotations", with_bbox=True),
            dict(
                type="RandomChoice",
                transforms=[
                    [dict(type="Resize", scale_factor=scale)]
                    for scale in (0.8, 0.9, 1.0, 1.1, 1.25)
                ],
            ),
            dict(type="PackDetInputs"),
        ],
    ),
)
val_dataloader = dict(
    batch_size=1,
    num_workers=0,
    sampler=dict(type="polaformer.EpochSampler", shuffle=False),
    collate_fn=dict(type="pseudo_collate"),
    dataset=dict(
        type="polaformer.CocoDataset",
        data_root="data/digit_scenes",
        ann_file="annotations/val.json",
        data_prefix=dict(img="val/"),
        test_mode=True,
        pipeline=[
            dict(type="polaformer.LoadImage"),
            dict(type="Resize", scale_factor=1.1),
            dict(type="PackDetInputs"),
        ],
    ),
)
test_dataloader = val_dataloader
val_evaluator = dict(type="polaformer.CocoMetric", metric=("bbox",))
test_evaluator = val_evaluator
# With `tools/test.py CONFIG CHECKPOINT --tta`, each scene is seen at three sizes.
tta_model = dict(type="polaformer.DetectionTTA")
tta_pipeline = [
    dict(type="polaformer.LoadImage"),
    dict(
        type="TestTimeAug",
        transforms=[
            [dict(type="Resize", scale_factor=scale) for scale in (0.95, 1.1, 1.25)],
            [dict(type="PackDetInputs")],
        ],
    ),
]
