# 36 epochs, a tenth of the rate after epochs 27 and 33; the rest as in 1x (Swin, arXiv 2103.14030,
# section 4.2, and its released configs).
_base_ = "./1x.py"

param_scheduler = dict(milestones=(27, 33))
train_cfg = dict(max_epochs=36)
