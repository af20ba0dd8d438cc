# Scenes of handwritten digits with boxes and masks.
_base_ = "./digit_scenes.py"

train_dataloader = dict(
    dataset=dict(
        pipeline=[
            dict(type="polaformer.LoadImage"),
            dict(type="LoadAnnotations", with_bbox=True, with_mask=True),
            dict(
                type="RandomChoice",
                transforms=[
                    [dict(type="Resize", scale_factor=scale)]
                    for scale in (0.8, 0.9, 1.0, 1.1, 1.25)
                ],
            ),
            dict(type="PackDetInputs"),
        ]
    )
)
val_evaluator = dict(metric=("bbox", "segm"))
test_evaluator = val_evaluator
