# ADE20K (150 classes): shorter side 512 times 0.5 to 2, a crop of 512 x 512 in which no class fills
# more than three quarters, mirrored half of the time, colours varied; as PVT and Swin. Validation
# brings the shorter side to 512 (the longer to at most 2048) and compares at the size of the mask.
# Batch size is per process; validation takes one image at a time.
train_dataloader = dict(
    batch_size=2,
    num_workers=4,
    persistent_workers=True,
    sampler=dict(type="polaformer.InfiniteSampler", shuffle=True),
    collate_fn=dict(type="pseudo_collate"),
    dataset=dict(
        type="polaformer.SegmentationDataset",
        data_root="data/ADEChallengeData2016",
        data_prefix=dict(img_path="images/training", seg_map_path="annotations/training"),
        classes="ade20k",
        pipeline=[
            dict(type="polaformer.LoadImage"),
            dict(type="polaformer.LoadMask"),
            dict(type="RandomResize", scale=(2048, 512), ratio_range=(0.5, 2.0), keep_ratio=True),
            dict(type="RandomCrop", crop_size=(512, 512), cat_max_ratio=0.75),
            dict(type="RandomFlip", prob=0.5),
            dict(type="PhotoMetricDistortion"),
            dict(type="PackSegInputs"),
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
        type="polaformer.SegmentationDataset",
        data_root="data/ADEChallengeData2016",
        data_prefix=dict(img_path="images/validation", seg_map_path="annotations/validation"),
        classes="ade20k",
        test_mode=True,
        pipeline=[
            dict(type="polaformer.LoadImage"),
            dict(type="Resize", scale=(2048, 512), keep_ratio=True),
            dict(type="polaformer.LoadMask"),
            dict(type="PackSegInputs"),
        ],
    ),
)
test_dataloader = val_dataloader
val_evaluator = dict(type="polaformer.SegmentationMetric")
test_evaluator = val_evaluator
# With `tools/test.py CONFIG CHECKPOINT --tta`, each image is seen at six sizes and mirrored.
tta_model = dict(type="polaformer.SegmentationTTA")
tta_pipeline = [
    dict(type="polaformer.LoadImage"),
    dict(
        type="TestTimeAug",
        transforms=[
            [
                dict(type="Resize", scale=(int(2048 * ratio), int(512 * ratio)), keep_ratio=True)
                for ratio in (0.5, 0.75, 1.0, 1.25, 1.5, 1.75)
            ],
            [dict(type="RandomFlip", prob=0.0), dict(type="RandomFlip", prob=1.0)],
            [dict(type="polaformer.LoadMask")],
            [dict(type="PackSegInputs")],
        ],
    ),
]
