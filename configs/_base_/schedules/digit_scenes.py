# 8 epochs, the first of them for warm-up: a few minutes on one CPU core.
auto_scale_lr = dict(enable=True, base_batch_size=4)
optim_wrapper = dict(
    type="OptimWrapper",
    constructor="polaformer.OptimConstructor",
    optimizer=dict(type="AdamW", lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.05),
    clip_grad=dict(max_norm=5.0),
    paramwise_cfg=dict(decay_rule="usual"),
)
param_scheduler = dict(
    type="polaformer.WarmupCosineLR",
    T_max=8,
    warmup=1,
    warmup_ratio=1e-2,
    eta_min_ratio=1e-2,
    convert_to_iter_based=True,
)
train_cfg = dict(type="polaformer.EpochTrainLoop", max_epochs=8, val_interval=1)
val_cfg = dict(type="polaformer.ValLoop")
test_cfg = dict(type="polaformer.TestLoop")
