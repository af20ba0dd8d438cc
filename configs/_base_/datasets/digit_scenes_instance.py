# Scenes of handwritten digits with boxes and masks.
_base_ = "./digit_scenes.py"

train_dataloader = dict(
    dataset=dict(
        pipeline=[
            dict(type="polaformer.LoadImage"),
            dict(type="LoadAnnotations", with_bbox=True, with_mask=True),
            dict(type="PackDetInputs"),
        ]
    )
)
val_evaluator = dict(metric=("bbox", "segm"))
test_evaluator = val_evaluator
