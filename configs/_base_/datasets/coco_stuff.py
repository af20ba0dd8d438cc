# COCO-Stuff (171 classes): the pictures of COCO 2017 with the masks of stuffthingmaps_trainval2017,
# as they come; sizes as for ADE20K.
_base_ = "./ade20k.py"

train_dataloader = dict(
    dataset=dict(
        data_root="data/coco",
        data_prefix=dict(img_path="train2017", seg_map_path="stuffthingmaps/train2017"),
        classes="coco_stuff",
    )
)
val_dataloader = dict(
    dataset=dict(
        data_root="data/coco",
        data_prefix=dict(img_path="val2017", seg_map_path="stuffthingmaps/val2017"),
        classes="coco_stuff",
    )
)
test_dataloader = val_dataloader
