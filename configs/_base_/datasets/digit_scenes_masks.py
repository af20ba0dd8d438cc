# Scenes of handwritten digits with a class for each pixel; `python tools/prepare_data.py
# digit-scenes` writes them. Trained on crops of 128 x 128 from scenes that are 0.9 to 1.5 times as
# wide and as high, not always alike, half of them turned by up to 10 degrees; validated at 1.25
# times their sizes; never mirrored.
train_dataloader = dict(
    batch_size=4,
    num_workers=0,
    sampler=dict(type="polaformer.InfiniteSampler", shuffle=True),
    collate_fn=dict(type="pseudo_collate"),
    dataset=dict(
        type="polaformer.SegmentationDataset",
        data_root="data/digit_scenes",
        data_prefix=dict(img_path="train", seg_map_path="train_labels"),
        classes=("background", *"0123456789"),
        pipeline=[
            dict(type="polaformer.LoadImage"),
            dict(type="polaformer.LoadMask"),
            dict(
                type="RandomChoice",
                transforms=[
                    [dict(type="Resize", scale_factor=(width, height))]
                    for width, height in (
                        *((0.9, 0.9), (0.9, 1.1), (1.1, 0.9), (1.1, 1.1), (1.1, 1.3)),
                        *((1.3, 1.1), (1.3, 1.3), (1.3, 1.5), (1.5, 1.3), (1.5, 1.5)),
                    )
                ],
            ),
            dict(type="RandomRotate", prob=0.5, degree=10.0, seg_pad_val=255),
            dict(type="RandomCrop", crop_size=(128, 128)),
            dict(type="PackSegInputs"),
        ],
    ),
)
val_dataloader = dict(
    batch_size=1,
    num_workers=0,
    sampler=dict(type="polaformer.EpochSampler", shuffle=False),
    collate_fn=dict(type="pseudo_collate"),
    dataset=dict(
        type="polaformer.SegmentationDataset",
        data_root="data/digit_scenes",
        data_prefix=dict(img_path="val", seg_map_path="val_labels"),
        classes=("background", *"0123456789"),
        test_mode=True,
        pipeline=[
            dict(type="polaformer.LoadImage"),
            dict(type="Resize", scale_factor=1.25, keep_ratio=True),
            dict(type="polaformer.LoadMask"),
            dict(type="PackSegInputs"),
        ],
    ),
)
test_dataloader = val_dataloader
val_evaluator = dict(type="polaformer.SegmentationMetric")
test_evaluator = val_evaluator
# With `tools/test.py CONFIG CHECKPOINT --tta`, each scene is seen at three sizes.
tta_model = dict(type="polaformer.SegmentationTTA")
tta_pipeline = [
    dict(type="polaformer.LoadImage"),
    dict(
        type="TestTimeAug",
        transforms=[
            [
                dict(type="Resize", scale_factor=scale, keep_ratio=True)
                for scale in (1.1, 1.25, 1.4)
            ],
            [dict(type="polaformer.LoadMask")],
            [dict(type="PackSegInputs")],
        ],
    ),
]
