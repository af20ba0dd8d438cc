"""Widths, strides, classes, masks and sizes of detectors."""

from __future__ import annotations

import json

import pytest
from detectors import write_coco, write_detectors

from polaformer.config import data_sets
from polaformer.config.check import check_file


@pytest.fixture
def detectors(tree):
    write_detectors(tree)
    return tree


def checked(tree, text: str, base: str = "retina", overrides=(), **options):
    tree.write("child.py", f"_base_ = '{base}.py'\n{text}")
    options = {"require_data": False, "sizes": False, **options}
    return check_file("child.py", overrides, **options)


# Widths and strides -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "base, text, line",
    [
        (
            "retina",
            "model=dict(neck=dict(in_channels=[96, 192, 384]))",
            "model.neck.in_channels (child.py:2): [96, 192, 384], but PolaPVT with "
            "out_indices=(1, 2, 3) gives 3 maps of [64, 96, 128] channels; "
            "write in_channels=[64, 96, 128]",
        ),
        (
            "retina",
            "model=dict(backbone=dict(out_indices=(0, 1, 2, 3)))",
            "model.neck.in_channels (retina.py:7): [64, 96, 128], but PolaPVT with "
            "out_indices=(0, 1, 2, 3) gives 4 maps of [32, 64, 96, 128] channels; "
            "write in_channels=[32, 64, 96, 128]",
        ),
        (
            "retina",
            "model=dict(neck=dict(out_channels=64))",
            "model.bbox_head.in_channels (retina.py:10): 32, but the maps of the neck have 64 "
            "channels; write in_channels=64",
        ),
        (
            "retina",
            "model=dict(bbox_head=dict(anchor_generator=dict(strides=[4, 8, 16, 32, 64])))",
            "model.bbox_head.anchor_generator.strides (child.py:2): [4, 8, 16, 32, 64], but the "
            "neck gives maps of strides [8, 16, 32, 64, 128]; write strides=[8, 16, 32, 64, 128]",
        ),
        (
            "retina",
            "model=dict(neck=dict(num_outs=4))",
            "maps of strides [8, 16, 32, 64]; write strides=[8, 16, 32, 64]",
        ),
        (
            "cascade",
            "model=dict(rpn_head=dict(in_channels=16))",
            "model.rpn_head.in_channels (child.py:2): 16, but the maps of the neck have 32",
        ),
        (
            "cascade",
            "model=dict(roi_head=dict(mask_roi_extractor=dict(featmap_strides=[8, 16, 32, 64])))",
            "model.roi_head.mask_roi_extractor.featmap_strides (child.py:2): [8, 16, 32, 64], but "
            "the neck gives maps of strides [4, 8, 16, 32, 64]; "
            "write featmap_strides=[4, 8, 16, 32]",
        ),
        (
            "cascade",
            "model=dict(roi_head=dict(bbox_roi_extractor=dict(out_channels=8)))",
            "model.roi_head.bbox_roi_extractor.out_channels (child.py:2): 8, but the maps of the "
            "neck have 32; write out_channels=32",
        ),
        (
            "cascade",
            "model=dict(roi_head=dict(mask_head=dict(in_channels=8)))",
            "model.roi_head.mask_head.in_channels (child.py:2): 8, but mask_roi_extractor gives "
            "32 channels; write in_channels=32",
        ),
        (
            "cascade",
            "model=dict(roi_head=dict(bbox_roi_extractor=dict(roi_layer=dict(output_size=14))))",
            "7, but bbox_roi_extractor cuts out 14; write roi_feat_size=14",
        ),
    ],
)
def test_parts_that_do_not_fit(detectors, base, text, line):
    found = checked(detectors, text, base).problems
    assert any(line in problem for problem in found), found


def test_one_mistake_is_told_once(detectors):
    text = "model=dict(neck=dict(in_channels=[1, 2, 3]))"
    assert len(checked(detectors, text, sizes=True).problems) == 1


def test_a_constructor_that_fails_without_a_word_is_told_by_its_line(detectors):
    (problem,) = checked(detectors, "model=dict(neck=dict(num_outs=2))").problems
    assert "FPN cannot be built: refuses its values: num_outs >=" in problem


def test_an_unread_map_is_a_note_for_one_process_and_a_problem_for_several(detectors):
    text = """
model = dict(backbone=dict(out_indices=(0, 1, 2, 3)),
             neck=dict(in_channels=[32, 64, 96, 128], start_level=1))
"""
    plan = checked(detectors, text)
    assert plan.problems == []
    assert any("out_indices=(1, 2, 3)" in note for note in plan.notes)
    (problem,) = checked(detectors, text, processes=2).problems
    assert problem.startswith("model.neck.start_level (child.py:4): ")
    assert "in_channels=[64, 96, 128]" in problem
    allowed = f"{text}find_unused_parameters = True"
    assert checked(detectors, allowed, processes=2).problems == []


# Classes ----------------------------------------------------------------------------------------


def test_data_and_heads_agree(detectors):
    write_coco(detectors.root, "train")
    write_coco(detectors.root, "val", images=3)
    plan = checked(detectors, "", require_data=True)
    assert plan.problems == []
    assert (plan.data["train"].images, plan.data["val"].images) == (4, 3)
    assert plan.data["train"].classes == ("cat", "dog")
    assert plan.steps.per_epoch == 2


def test_every_head_is_compared_and_the_line_to_write_is_told(detectors):
    names = ("cat", "dog", "bird")
    write_coco(detectors.root, "train", names)
    write_coco(detectors.root, "val", names)
    found = checked(detectors, "", "cascade").problems
    assert [line.split(" ")[0] for line in found] == [
        "model.roi_head.bbox_head.0.num_classes",
        "model.roi_head.bbox_head.1.num_classes",
        "model.roi_head.mask_head.num_classes",
    ]
    assert "2, but train_dataloader.dataset has 3 classes (cat, dog, bird)" in found[0]
    assert "write classes = ('cat', 'dog', 'bird') at the top" in found[0]
    mended = "classes = ('cat', 'dog', 'bird')"
    assert checked(detectors, mended, "cascade").problems == []


def test_a_number_left_to_a_default_is_compared_too(detectors):
    write_coco(detectors.root, "train")
    write_coco(detectors.root, "val")
    head = "dict(_delete_=True, type='FCNMaskHead', in_channels=32, num_convs=1)"
    found = checked(detectors, f"model=dict(roi_head=dict(mask_head={head}))", "cascade").problems
    assert len(found) == 1
    assert "model.roi_head.mask_head.num_classes (" in found[0]
    assert "80, but train_dataloader.dataset has 2 classes" in found[0]


def test_splits_with_other_classes_or_another_order(detectors):
    write_coco(detectors.root, "train")
    write_coco(detectors.root, "val", ("dog", "cat"))
    found = checked(detectors, "").problems
    assert any("the classes of train in another order" in line for line in found), found
    assert checked(detectors, "classes = ('cat', 'dog')").problems == []
    write_coco(detectors.root, "val", ("cat", "cow"))
    found = checked(detectors, "").problems
    assert any("only in val: cow; only in train: dog" in line for line in found), found


def test_names_that_the_file_does_not_have(detectors):
    write_coco(detectors.root, "train")
    write_coco(detectors.root, "val")
    found = checked(detectors, "classes = ('cat', 'dgo')").problems
    assert found
    assert all("dgo" in line for line in found)


# Data -------------------------------------------------------------------------------------------


def test_coco_that_is_not_here_is_planned_with_its_published_size(detectors):
    coco = """
train_dataloader = dict(dataset=dict(data_root='data/coco', min_size=32,
    ann_file='annotations/instances_train2017.json', images_without_objects='drop'))
val_dataloader = test_dataloader = dict(dataset=dict(data_root='data/coco',
    ann_file='annotations/instances_val2017.json'))
"""
    plan = checked(detectors, coco + "model = dict(bbox_head=dict(num_classes=80))")
    assert plan.problems == []
    assert [plan.data[split].images for split in ("train", "val", "test")] == [117266, 5000, 5000]
    assert len(plan.data["train"].classes) == 80
    assert plan.steps.per_epoch == 58633
    every = checked(detectors, coco.replace("'drop'", "'use'"))
    assert every.data["train"].images == 118287
    (problem, *_) = checked(detectors, coco).problems
    assert "2, but train_dataloader.dataset has 80 classes" in problem
    (problem, *_) = checked(detectors, coco, require_data=True).problems
    assert "instances_train2017.json" in problem


def test_a_changed_annotation_file_is_read_again(detectors):
    write_coco(detectors.root, "train")
    write_coco(detectors.root, "val")
    assert checked(detectors, "", keep_listings=True).data["train"].images == 4
    write_coco(detectors.root, "train", images=7)
    assert checked(detectors, "", keep_listings=True).data["train"].images == 7
    data_sets.forget_listings()


def test_a_broken_annotation_file_is_a_problem_even_without_required_data(detectors):
    write_coco(detectors.root, "val")
    (detectors.root / "data" / "toy" / "train.json").write_text('{"images": [')
    (problem,) = checked(detectors, "").problems
    assert "train.json" in problem


def test_batches_by_aspect_ratio_are_dropped_where_they_are_made(detectors):
    write_coco(detectors.root, "train", images=5)
    write_coco(detectors.root, "val")
    group = "train_dataloader.batch_sampler.drop_last=True"
    assert checked(detectors, "").steps.per_epoch == 3
    assert checked(detectors, "", overrides=[group]).steps.per_epoch == 2
    (problem,) = checked(detectors, "", overrides=["train_dataloader.drop_last=True"]).problems
    assert "train_dataloader.drop_last (--cfg-options): belongs into batch_sampler" in problem
    (problem,) = checked(detectors, "", overrides=[group, "train_dataloader.batch_size=6"]).problems
    assert "Set train_dataloader.batch_sampler.drop_last=False or" in problem


def test_milestones_after_the_end_are_a_note(detectors):
    plan = checked(detectors, "train_cfg = dict(max_epochs=9)")
    assert plan.problems == []
    assert any("milestones" in note and "11 never come" in note for note in plan.notes)


# Masks ------------------------------------------------------------------------------------------


def test_masks_without_a_mask_head(detectors):
    text = "val_evaluator = dict(metric=('bbox', 'segm'))"
    (problem,) = checked(detectors, text).problems
    assert problem.startswith("val_evaluator.metric (child.py:2): ")
    assert "RetinaNet has no mask head" in problem
    assert checked(detectors, text, "cascade").problems == []


def test_a_mask_head_without_masks_to_learn_from(detectors):
    (problem,) = checked(
        detectors, "", "cascade", ["train_dataloader.dataset.pipeline.1.with_mask=False"]
    ).problems
    assert problem.startswith("train_dataloader.dataset.pipeline.1 (")
    assert "add with_mask=True" in problem


@pytest.mark.parametrize(
    "best, sentence",
    [
        ("auto", None),
        ("bbox_mAP_50", None),
        ("bbox_map", "did you mean 'bbox_mAP'?"),
        ("segm_mAP", "validation gives no 'segm_mAP'"),
        ("top1", "validation gives no 'top1'"),
    ],
)
def test_the_metric_that_chooses_the_best_checkpoint(detectors, best, sentence):
    hook = f"dict(type='polaformer.CheckpointHook', interval=1, rule='greater', save_best='{best}')"
    found = checked(detectors, f"default_hooks = dict(checkpoint={hook})").problems
    if sentence is None:
        assert found == []
    else:
        assert len(found) == 1
        assert sentence in found[0]


# Sizes ------------------------------------------------------------------------------------------


def test_sizes_of_a_detector_say_what_was_counted(detectors):
    one = checked(detectors, "", sizes=True)
    two = checked(detectors, "", "cascade", sizes=True)
    assert one.problems == two.problems == []
    # The largest choice is 64 x 96, both multiples of 32 already.
    assert one.cost.input_size == two.cost.input_size == (64, 96)
    rows = dict(one.rows())
    assert rows["counted"] == "backbone, neck and dense head"
    assert "what the RoI heads add depends on the proposals" in dict(two.rows())["counted"]
    assert one.memory is None  # no data here, so the length of the run is unknown
    json.dumps(two.to_dict())


def test_multiply_adds_of_the_dense_head_by_hand(detectors):
    """One tower of 3 x 3 x 32 x 32 for boxes and classes each, 9 anchors, 5 maps."""
    whole = checked(detectors, "", sizes=True).cost
    more = "model=dict(bbox_head=dict(stacked_convs=2))"
    deeper = checked(detectors, more, sizes=True).cost
    cells = 8 * 12 + 4 * 6 + 2 * 3 + 1 * 2 + 1 * 1
    assert deeper.macs - whole.macs == 2 * 9 * 32 * 32 * cells
    assert deeper.params - whole.params == 2 * (9 * 32 * 32 + 32)


def test_a_fault_after_a_mistake_is_visible(detectors, monkeypatch):
    def broken(*_):
        raise ZeroDivisionError("ours")

    monkeypatch.setattr("polaformer.config.rules.batches", broken)
    plan = checked(detectors, "modle = 1\nmodel=dict(neck=dict(num_out=5))")
    assert plan.problems
    assert any("ZeroDivisionError" in note and "ours" in note for note in plan.notes)
    with pytest.raises(ZeroDivisionError):
        checked(detectors, "")
