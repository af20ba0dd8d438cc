# 160,000 iterations of 16 images: AdamW at 6e-5 with weight decay 0.01, linear warm-up over 1,500
# iterations from 1e-6 of the rate, then falling to 0 in a straight line. As Swin (arXiv 2103.14030,
# appendix A2.3, and its released configs). Another number of images per step scales the rate in
# proportion. Norms, biases and position tables do not decay.
auto_scale_lr = dict(enable=True, base_batch_size=16)
optim_wrapper = dict(
    type="OptimWrapper",
    constructor="polaformer.OptimConstructor",
    optimizer=dict(type="AdamW", lr=6e-5, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.01),
    clip_grad=None,
    paramwise_cfg=dict(decay_rule="usual"),
)
param_scheduler = dict(
    type="polaformer.WarmupPolyLR",
    power=1.0,
    warmup_iters=1_500,
    warmup_ratio=1e-6,
    eta_min_ratio=0.0,
)
train_cfg = dict(type="polaformer.IterTrainLoop", max_iters=160_000, val_interval=16_000)
val_cfg = dict(type="polaformer.ValLoop")
test_cfg = dict(type="polaformer.TestLoop")
