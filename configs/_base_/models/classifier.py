# The recipe adds the backbone. The head takes its width from the backbone, the preprocessor the
# number of classes and the label smoothing from the head.
model = dict(
    type="polaformer.ImageClassifier",
    head=dict(
        type="polaformer.LinearHead",
        num_classes=1000,
        loss=dict(type="polaformer.ClassificationLoss", label_smoothing=0.1),
    ),
    data_preprocessor=dict(
        type="polaformer.ClsPreprocessor",
        mean=[123.675, 116.28, 103.53],
        std=[58.395, 57.12, 57.375],
    ),
)
