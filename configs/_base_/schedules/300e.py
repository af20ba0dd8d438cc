# 300 epochs, 20 of warm-up. The published rule: learning rate 5e-4 at 512 images per step, in
# proportion for others; warm-up from 5e-7 and end at 5e-6 in the same proportion.
auto_scale_lr = dict(enable=True, base_batch_size=512)
optim_wrapper = dict(
    type="OptimWrapper",
    constructor="polaformer.OptimConstructor",
    optimizer=dict(type="AdamW", lr=5e-4, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.05),
    clip_grad=dict(max_norm=5.0),
    paramwise_cfg=dict(decay_rule="published"),
)
param_scheduler = dict(
    type="polaformer.WarmupCosineLR",
    T_max=300,
    warmup=20,
    warmup_ratio=1e-3,
    eta_min_ratio=1e-2,
    convert_to_iter_based=True,
)
train_cfg = dict(type="polaformer.EpochTrainLoop", max_epochs=300, val_interval=1)
val_cfg = dict(type="polaformer.ValLoop")
test_cfg = dict(type="polaformer.TestLoop")
