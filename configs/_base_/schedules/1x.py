# 12 epochs of 16 images a step: AdamW at 1e-4, linear warm-up over 500 steps (fewer on small data),
# a tenth of the rate after epochs 8 and 11; another number of images per step scales the rate in
# proportion. As Swin (arXiv 2103.14030, section 4.2, and its released configs) and the detection
# configs released with PolaFormer++. Norms, biases and position tables do not decay.
auto_scale_lr = dict(enable=True, base_batch_size=16)
optim_wrapper = dict(
    type="OptimWrapper",
    constructor="polaformer.OptimConstructor",
    optimizer=dict(type="AdamW", lr=1e-4, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.05),
    clip_grad=None,
    paramwise_cfg=dict(decay_rule="usual"),
)
param_scheduler = dict(
    type="polaformer.WarmupStepLR",
    milestones=(8, 11),
    gamma=0.1,
    warmup_iters=500,
    warmup_ratio=1e-3,
    convert_to_iter_based=True,
)
train_cfg = dict(type="polaformer.EpochTrainLoop", max_epochs=12, val_interval=1)
val_cfg = dict(type="polaformer.ValLoop")
test_cfg = dict(type="polaformer.TestLoop")
