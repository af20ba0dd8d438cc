# ADE20K with crops of 640 x 640: all sizes are those of ade20k.py times 1.25, as Swin-B and Swin-L
# were trained from ImageNet-22K weights (arXiv 2103.14030, appendix A2.3).
_base_ = "./ade20k.py"

train_dataloader = dict(
    dataset=dict(
        pipeline=[
            dict(type="polaformer.LoadImage"),
            dict(type="polaformer.LoadMask"),
            dict(type="RandomResize", scale=(2560, 640), ratio_range=(0.5, 2.0), keep_ratio=True),
            dict(type="RandomCrop", crop_size=(640, 640), cat_max_ratio=0.75),
            dict(type="RandomFlip", prob=0.5),
            dict(type="PhotoMetricDistortion"),
            dict(type="PackSegInputs"),
        ]
    )
)
val_dataloader = dict(
    dataset=dict(
        pipeline=[
            dict(type="polaformer.LoadImage"),
            dict(type="Resize", scale=(2560, 640), keep_ratio=True),
            dict(type="polaformer.LoadMask"),
            dict(type="PackSegInputs"),
        ]
    )
)
test_dataloader = val_dataloader
tta_pipeline = [
    dict(type="polaformer.LoadImage"),
    dict(
        type="TestTimeAug",
        transforms=[
            [
                dict(type="Resize", scale=(int(2560 * ratio), int(640 * ratio)), keep_ratio=True)
                for ratio in (0.5, 0.75, 1.0, 1.25, 1.5, 1.75)
            ],
            [dict(type="RandomFlip", prob=0.0), dict(type="RandomFlip", prob=1.0)],
            [dict(type="polaformer.LoadMask")],
            [dict(type="PackSegInputs")],
        ],
    ),
]
