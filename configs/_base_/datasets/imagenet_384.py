# The same images at 384; evaluation brings both sides to 384 and crops nothing.
_base_ = "./imagenet.py"

train_dataloader = dict(dataset=dict(transforms=dict(input_size=384)))
val_dataloader = dict(dataset=dict(transforms=dict(input_size=384, test_crop=False)))
test_dataloader = val_dataloader
