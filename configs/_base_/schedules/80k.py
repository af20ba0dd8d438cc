# 80,000 iterations of 16 images: AdamW at 1e-4 with weight decay 1e-4, falling to 0 with the power
# 0.9 of what is left. As PVT (arXiv 2102.12122, section 5.3; its released configs take 40,000 of 32
# images at 2e-4). Another number of images per step scales the rate in proportion. Norms, biases
# and position tables do not decay.
auto_scale_lr = dict(enable=True, base_batch_size=16)
optim_wrapper = dict(
    type="OptimWrapper",
    constructor="polaformer.OptimConstructor",
    optimizer=dict(type="AdamW", lr=1e-4, betas=(0.9, 0.999), eps=1e-8, weight_decay=1e-4),
    clip_grad=None,
    paramwise_cfg=dict(decay_rule="usual"),
)
param_scheduler = dict(
    type="polaformer.WarmupPolyLR",
    power=0.9,
    warmup_iters=0,
    warmup_ratio=1.0,
    eta_min_ratio=0.0,
)
train_cfg = dict(type="polaformer.IterTrainLoop", max_iters=80_000, val_interval=8_000)
val_cfg = dict(type="polaformer.ValLoop")
test_cfg = dict(type="polaformer.TestLoop")
