# COCO 2017, boxes and masks; sizes, mirroring and validation as for boxes alone.
_base_ = "./coco_detection.py"

train_dataloader = dict(
    dataset=dict(
        pipeline=[
            dict(type="polaformer.LoadImage"),
            dict(type="LoadAnnotations", with_bbox=True, with_mask=True),
            dict(type="Resize", scale=(1333, 800), keep_ratio=True),
            dict(type="RandomFlip", prob=0.5),
            dict(type="PackDetInputs"),
        ]
    )
)
val_evaluator = dict(metric=("bbox", "segm"))
test_evaluator = val_evaluator
