# 5,000 iterations of 4 scenes, the first 300 for warm-up: minutes on two CPU cores.
auto_scale_lr = dict(enable=True, base_batch_size=4)
optim_wrapper = dict(
    type="OptimWrapper",
    constructor="polaformer.OptimConstructor",
    optimizer=dict(type="AdamW", lr=1.5e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.05),
    clip_grad=dict(max_norm=5.0),
    paramwise_cfg=dict(decay_rule="usual"),
)
param_scheduler = dict(
    type="polaformer.WarmupPolyLR",
    power=1.0,
    warmup_iters=300,
    warmup_ratio=1e-2,
    eta_min_ratio=1e-2,
)
train_cfg = dict(type="polaformer.IterTrainLoop", max_iters=5_000, val_interval=1_000)
val_cfg = dict(type="polaformer.ValLoop")
test_cfg = dict(type="polaformer.TestLoop")
