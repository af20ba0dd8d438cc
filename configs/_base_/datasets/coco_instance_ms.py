# COCO 2017, boxes and masks, trained at many sizes: the shorter side is one of 480, 512, … 800 and
# the longer at most 1333 pixels, for half of the images after a crop of 384 to 600 pixels from a
# size between 400 and 600. From DETR (arXiv 2005.12872), with Swin (arXiv 2103.14030) and after.
_base_ = "./coco_instance.py"

train_dataloader = dict(
    dataset=dict(
        pipeline=[
            dict(type="polaformer.LoadImage"),
            dict(type="LoadAnnotations", with_bbox=True, with_mask=True),
            dict(type="RandomFlip", prob=0.5),
            dict(
                type="RandomChoice",
                transforms=[
                    [
                        dict(
                            type="RandomChoiceResize",
                            scales=[(side, 1333) for side in range(480, 801, 32)],
                            keep_ratio=True,
                        )
                    ],
                    [
                        dict(
                            type="RandomChoiceResize",
                            scales=[(400, 1333), (500, 1333), (600, 1333)],
                            keep_ratio=True,
                        ),
                        dict(
                            type="RandomCrop",
                            crop_type="absolute_range",
                            crop_size=(384, 600),
                            allow_negative_crop=True,
                        ),
                        dict(
                            type="RandomChoiceResize",
                            scales=[(side, 1333) for side in range(480, 801, 32)],
                            keep_ratio=True,
                        ),
                    ],
                ],
            ),
            dict(type="PackDetInputs"),
        ]
    )
)
