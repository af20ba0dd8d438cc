# With the batch augmentation of the published ImageNet recipes.
_base_ = "./classifier.py"

model = dict(
    data_preprocessor=dict(
        random_erasing=dict(prob=0.25, mode="pixel", count=1),
        mixup=dict(mixup_alpha=0.8, cutmix_alpha=1.0, prob=1.0, switch_prob=0.5, mode="batch"),
    ),
)
