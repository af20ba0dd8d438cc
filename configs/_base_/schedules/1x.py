# 12 epochs of 16 images a step: AdamW at 1e-4 with linear warm-up over 1,000 steps, a tenth of it
# after epochs 8 and 11; another number of images per step scales the rate in proportion. The
# settings of PVT (arXiv 2102.12122) and Swin (arXiv 2103.14030) on COCO; weight decay is Swin's and
# spares norms, biases and position tables.
auto_scale_lr = dict(enable=True, base_batch_size=16)
optim_wrapper = dict(
    type="OptimWrapper",
    constructor="polaformer.OptimConstructor",
    optimizer=dict(type="AdamW", lr=1e-4, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.05),
    clip_grad=None,
    paramwise_cfg=dict(decay_rule="usual"),
)
param_scheduler = [
    dict(type="LinearLR", start_factor=0.001, by_epoch=False, begin=0, end=1000),
    dict(type="MultiStepLR", by_epoch=True, begin=0, end=12, milestones=[8, 11], gamma=0.1),
]
train_cfg = dict(type="polaformer.EpochTrainLoop", max_epochs=12, val_interval=1)
val_cfg = dict(type="polaformer.ValLoop")
test_cfg = dict(type="polaformer.TestLoop")
