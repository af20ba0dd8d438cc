# COCO 2017, boxes: longer side at most 1333 and shorter at most 800 pixels, mirrored half of the
# time. Batch size is per process. Training batches are not grouped by aspect ratio: the sampler
# that does so cannot continue in the middle of an epoch. Validation takes one image at a time, for
# padding to a common size would make a result depend on the image beside it.
train_dataloader = dict(
    batch_size=2,
    num_workers=4,
    persistent_workers=True,
    sampler=dict(type="polaformer.EpochSampler", shuffle=True),
    collate_fn=dict(type="pseudo_collate"),
    dataset=dict(
        type="polaformer.CocoDataset",
        data_root="data/coco",
        ann_file="annotations/instances_train2017.json",
        data_prefix=dict(img="train2017/"),
        images_without_objects="drop",
        min_size=32,
        pipeline=[
            dict(type="polaformer.LoadImage"),
            dict(type="LoadAnnotations", with_bbox=True),
            dict(type="Resize", scale=(1333, 800), keep_ratio=True),
            dict(type="RandomFlip", prob=0.5),
            dict(type="PackDetInputs"),
        ],
    ),
)
val_dataloader = dict(
    batch_size=1,
    num_workers=4,
    persistent_workers=True,
    sampler=dict(type="polaformer.EpochSampler", shuffle=False),
    collate_fn=dict(type="pseudo_collate"),
    dataset=dict(
        type="polaformer.CocoDataset",
        data_root="data/coco",
        ann_file="annotations/instances_val2017.json",
        data_prefix=dict(img="val2017/"),
        test_mode=True,
        pipeline=[
            dict(type="polaformer.LoadImage"),
            dict(type="Resize", scale=(1333, 800), keep_ratio=True),
            dict(type="PackDetInputs"),
        ],
    ),
)
test_dataloader = val_dataloader
val_evaluator = dict(type="polaformer.CocoMetric", metric=("bbox",))
test_evaluator = val_evaluator
# With `tools/test.py CONFIG CHECKPOINT --tta`, each image is seen at three sizes and mirrored.
tta_model = dict(type="polaformer.DetectionTTA")
tta_pipeline = [
    dict(type="polaformer.LoadImage"),
    dict(
        type="TestTimeAug",
        transforms=[
            [
                dict(type="Resize", scale=(1000, 600), keep_ratio=True),
                dict(type="Resize", scale=(1333, 800), keep_ratio=True),
                dict(type="Resize", scale=(1600, 960), keep_ratio=True),
            ],
            [dict(type="RandomFlip", prob=0.0), dict(type="RandomFlip", prob=1.0)],
            [dict(type="PackDetInputs")],
        ],
    ),
]
