# 300 epochs, 5 of warm-up, then 10 of cool-down at the end rate. The published rule: learning rate
# 5e-4 at 512 images per step, in proportion for others; warm-up from 1e-6 and end at 1e-5 likewise.
# Gradients are not clipped.
auto_scale_lr = dict(enable=True, base_batch_size=512)
optim_wrapper = dict(
    type="OptimWrapper",
    constructor="polaformer.OptimConstructor",
    optimizer=dict(type="AdamW", lr=5e-4, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.05),
    clip_grad=None,
    paramwise_cfg=dict(decay_rule="published"),
)
param_scheduler = dict(
    type="polaformer.WarmupCosineLR",
    T_max=300,
    warmup=5,
    warmup_ratio=2e-3,
    eta_min_ratio=2e-2,
    convert_to_iter_based=True,
)
train_cfg = dict(type="polaformer.EpochTrainLoop", max_epochs=310, val_interval=1)
val_cfg = dict(type="polaformer.ValLoop")
test_cfg = dict(type="polaformer.TestLoop")
