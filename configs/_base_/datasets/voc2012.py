# Pascal VOC 2012 (background and 20 classes): 1,464 training and 1,449 validation images, sizes as
# for ADE20K. The white border of an object is 255 in the files and does not count.
_base_ = "./ade20k.py"

train_dataloader = dict(
    dataset=dict(
        data_root="data/VOCdevkit/VOC2012",
        data_prefix=dict(img_path="JPEGImages", seg_map_path="SegmentationClass"),
        ann_file="ImageSets/Segmentation/train.txt",
        classes="voc2012",
    )
)
val_dataloader = dict(
    dataset=dict(
        data_root="data/VOCdevkit/VOC2012",
        data_prefix=dict(img_path="JPEGImages", seg_map_path="SegmentationClass"),
        ann_file="ImageSets/Segmentation/val.txt",
        classes="voc2012",
    )
)
test_dataloader = val_dataloader
