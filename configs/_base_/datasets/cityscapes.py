# Cityscapes (19 classes): 2,975 training and 500 validation images of 1024 x 2048 pixels with fine
# masks (*_gtFine_labelIds.png, as they come). Trained on crops of 512 x 1024 from 0.5 to 2 times
# the size, as MMSegmentation's configs do; validation looks at whole images.
_base_ = "./ade20k.py"

train_dataloader = dict(
    dataset=dict(
        data_root="data/cityscapes",
        data_prefix=dict(img_path="leftImg8bit/train", seg_map_path="gtFine/train"),
        classes="cityscapes",
        pipeline=[
            dict(type="polaformer.LoadImage"),
            dict(type="polaformer.LoadMask"),
            dict(type="RandomResize", scale=(2048, 1024), ratio_range=(0.5, 2.0), keep_ratio=True),
            dict(type="RandomCrop", crop_size=(512, 1024), cat_max_ratio=0.75),
            dict(type="RandomFlip", prob=0.5),
            dict(type="PhotoMetricDistortion"),
            dict(type="PackSegInputs"),
        ],
    )
)
val_dataloader = dict(
    dataset=dict(
        data_root="data/cityscapes",
        data_prefix=dict(img_path="leftImg8bit/val", seg_map_path="gtFine/val"),
        classes="cityscapes",
        pipeline=[
            dict(type="polaformer.LoadImage"),
            dict(type="Resize", scale=(2048, 1024), keep_ratio=True),
            dict(type="polaformer.LoadMask"),
            dict(type="PackSegInputs"),
        ],
    )
)
test_dataloader = val_dataloader
tta_pipeline = [
    dict(type="polaformer.LoadImage"),
    dict(
        type="TestTimeAug",
        transforms=[
            [
                dict(type="Resize", scale=(int(2048 * ratio), int(1024 * ratio)), keep_ratio=True)
                for ratio in (0.5, 0.75, 1.0, 1.25, 1.5, 1.75)
            ],
            [dict(type="RandomFlip", prob=0.0), dict(type="RandomFlip", prob=1.0)],
            [dict(type="polaformer.LoadMask")],
            [dict(type="PackSegInputs")],
        ],
    ),
]
