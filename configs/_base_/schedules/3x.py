# 36 epochs, a tenth of the rate after epochs 27 and 33; the rest as in 1x (Swin, arXiv 2103.14030,
# section 4.2, and its released configs).
_base_ = "./1x.py"

param_scheduler = [
    dict(type="LinearLR", start_factor=0.001, by_epoch=False, begin=0, end=500),
    dict(type="MultiStepLR", by_epoch=True, begin=0, end=36, milestones=[27, 33], gamma=0.1),
]
train_cfg = dict(max_epochs=36)
