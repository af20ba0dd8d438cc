# 25 epochs, 2 of warm-up: about a minute on one CPU core.
auto_scale_lr = dict(enable=True, base_batch_size=64)
optim_wrapper = dict(
    type="OptimWrapper",
    constructor="polaformer.OptimConstructor",
    optimizer=dict(type="AdamW", lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.05),
    clip_grad=dict(max_norm=5.0),
    paramwise_cfg=dict(decay_rule="published"),
)
param_scheduler = dict(
    type="polaformer.WarmupCosineLR",
    T_max=25,
    warmup=2,
    warmup_ratio=1e-3,
    eta_min_ratio=1e-2,
    convert_to_iter_based=True,
)
train_cfg = dict(type="polaformer.EpochTrainLoop", max_epochs=25, val_interval=1)
val_cfg = dict(type="polaformer.ValLoop")
test_cfg = dict(type="polaformer.TestLoop")
