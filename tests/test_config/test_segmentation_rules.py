"""Widths, maps, classes, losses, windows and pipelines of segmentation configs."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest
from mmengine.config import Config
from segmentors import write_masks, write_segmentors

from polaformer.config import iterations
from polaformer.config.check import check_file
from polaformer.config.keys import find_mistakes
from polaformer.config.report import explain_key
from polaformer.config.segmentation_data import mask_loading
from polaformer.config.segmentation_heads import config_mistakes


@pytest.fixture
def segmentors(tree):
    write_segmentors(tree)
    return tree


def checked(tree, text: str, base: str = "fpn", overrides=(), **options):
    tree.write("child.py", f"_base_ = '{base}.py'\n{text}")
    options = {"require_data": False, "sizes": False, **options}
    return check_file("child.py", overrides, **options)


def told_once(found: list[str], line: str) -> None:
    assert [problem for problem in found if line in problem] == found, found
    assert len(found) == 1, found


@pytest.mark.parametrize("base", ["fpn", "uper"])
def test_sound_segmentors(segmentors, base):
    plan = checked(segmentors, "", base, sizes=True)
    assert plan.problems == []
    assert plan.cost.input_size == (64, 64)  # the crop
    assert plan.model.startswith("Segmentor of PolaPVT, ")
    auxiliary = "; auxiliary heads work in training only" if base == "uper" else ""
    assert plan.counted == f"backbone, neck and decode head{auxiliary}"


def test_the_scores_at_the_size_of_the_masks_are_counted_in_the_memory(segmentors):
    """One more class is one more float for each of 64 x 64 pixels, and what makes it."""
    write_masks(segmentors.root, "train")
    write_masks(segmentors.root, "val")
    three = checked(segmentors, "", sizes=True)
    four = checked(segmentors, "classes = ('a', 'b', 'c', 'd')", sizes=True)
    assert three.problems == four.problems == []
    more = four.cost.activation_bytes - three.cost.activation_bytes
    assert more == 4 * 64 * 64
    assert four.cost.macs - three.cost.macs == 16 * 16 * 16  # a map of 16 x 16, 16 channels
    assert three.memory is not None
    assert str(three.steps) == "40 iterations = 16.0 epochs of 3 (batch 2 x 1 process)"
    assert three.lr == 1e-4 * 2 / 4


def test_explain_tells_who_set_the_classes(segmentors, capsys):
    segmentors.write("child.py", "_base_ = 'uper.py'\nclasses = ('a', 'b')\n")
    assert explain_key("child.py", "model.auxiliary_head.num_classes") == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[:2] == [
        "model.auxiliary_head.num_classes = 2",
        "  child.py:2: classes = ('a', 'b')",
    ]


# Maps and heads ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "base, text, line",
    [
        (
            "fpn",
            "model=dict(neck=dict(in_channels=[64, 128, 256, 512]))",
            "model.neck.in_channels (child.py:2): [64, 128, 256, 512], but PolaPVT with "
            "out_indices=(0, 1, 2, 3) gives 4 maps of [32, 64, 96, 128] channels; "
            "write in_channels=[32, 64, 96, 128]",
        ),
        (
            "fpn",
            "model=dict(neck=dict(out_channels=32))",
            "model.decode_head.in_channels (fpn.py:11): [16, 16, 16, 16], but FPN gives 4 maps of "
            "[32, 32, 32, 32] channels; write in_channels=[32, 32, 32, 32], those of maps "
            "[0, 1, 2, 3]",
        ),
        (
            "fpn",
            "model=dict(decode_head=dict(feature_strides=[8, 16, 32, 64]))",
            "model.decode_head.feature_strides (child.py:2): [8, 16, 32, 64], but the maps have "
            "strides [4, 8, 16, 32]; write feature_strides=[4, 8, 16, 32]",
        ),
        (
            "fpn",
            "model=dict(neck=dict(num_outs=3))",
            "FPN cannot be built: refuses its values: num_outs >=",
        ),
        (
            "uper",
            "model=dict(backbone=dict(arch='tinny'))",
            "PolaPVT: there is no arch 'tinny'",
        ),
        (
            "uper",
            "model=dict(decode_head=dict(in_index=[0, 1, 2, 4]))",
            "model.decode_head.in_index (child.py:2): there is no map 4: PolaPVT with out_indices="
            "(0, 1, 2, 3) gives 4 maps of [32, 64, 96, 128] channels; allowed: 0 to 3",
        ),
        (
            "fpn",
            "model=dict(decode_head=dict(_delete_=True, type='FPNHead', channels=16, "
            "num_classes=3, in_index=[0, 1], feature_strides=[4, 8]))",
            "model.decode_head.in_channels (child.py:2): missing, but FPN gives 4 maps of "
            "[16, 16, 16, 16] channels; write in_channels=[16, 16], those of maps [0, 1]",
        ),
        (
            "uper",
            "model=dict(decode_head=dict(in_index=3))",
            "model.decode_head.in_index (child.py:2): 3 is one map, but in_channels has 4; "
            "write in_index=[0, 1, 2, 3]",
        ),
        (
            "uper",
            "model=dict(auxiliary_head=dict(in_index=5))",
            "model.auxiliary_head.in_index (child.py:2): there is no map 5: PolaPVT",
        ),
        (
            "uper",
            "model=dict(auxiliary_head=dict(in_index=1))",
            "model.auxiliary_head.in_channels (uper.py:15): 96, but PolaPVT with out_indices="
            "(0, 1, 2, 3) gives 4 maps of [32, 64, 96, 128] channels; write in_channels=64, those "
            "of map 1",
        ),
    ],
)
def test_parts_that_do_not_fit(segmentors, base, text, line):
    told_once(checked(segmentors, text, base).problems, line)


def test_each_of_several_auxiliary_heads_has_its_key(segmentors):
    text = segmentors.root.joinpath("uper.py").read_text()
    first, _, rest = text.partition("auxiliary_head=dict(")
    one, _, rest = rest.partition(",\n    test_cfg")
    listed = f"auxiliary_head=[dict({one}, dict({one.replace('in_index=2', 'in_index=0')}]"
    segmentors.write("uper.py", f"{first}{listed},\n    test_cfg{rest}")
    told_once(
        checked(segmentors, "", "uper").problems, "model.auxiliary_head.1.in_channels (uper.py:"
    )


def test_two_mistakes_are_told_together(segmentors):
    found = checked(
        segmentors,
        "model=dict(backbone=dict(out_indices=(1, 2, 3)), auxiliary_head=dict(num_classe=3))",
        "uper",
    ).problems
    assert any("FCNHead has no keyword 'num_classe'" in line for line in found), found
    assert any("there is no map 3" in line for line in found), found


# Classes ----------------------------------------------------------------------------------------


def test_heads_and_data_have_the_same_classes(segmentors):
    write_masks(segmentors.root, "train")
    write_masks(segmentors.root, "val", 3)
    plan = checked(segmentors, "", "uper", require_data=True)
    assert plan.problems == []
    assert plan.data["train"].classes == ("ground", "road", "car")
    (problem,) = checked(
        segmentors, "model=dict(auxiliary_head=dict(num_classes=4))", "uper"
    ).problems
    assert problem.startswith("model.auxiliary_head.num_classes (child.py:2): 4, but train_")
    assert "write classes = ('ground', 'road', 'car') at the top" in problem


def test_classes_at_the_top_set_all_heads_and_data(segmentors):
    plan = checked(segmentors, "classes = ('a', 'b', 'c', 'd')", "uper")
    assert plan.problems == []
    (problem,) = checked(
        segmentors, "classes = ('a', 'b')\nmodel=dict(decode_head=dict(num_classes=3))", "uper"
    ).problems
    assert problem.startswith("model.decode_head.num_classes (child.py:3): 3, but 'classes' names")


def test_classes_at_the_top_over_a_known_set(segmentors):
    text = segmentors.root.joinpath("data.py").read_text()
    segmentors.write("data.py", text.replace("('ground', 'road', 'car')", "'cityscapes'"))
    plan = checked(segmentors, "")
    assert [plan.data[split].images for split in ("train", "val")] == [2975, 500]
    (problem,) = plan.problems
    assert (
        "3, but train_dataloader.dataset has 19 classes (road, sidewalk, building, wall" in problem
    )
    own = checked(segmentors, "classes = ('a', 'b', 'c')")
    assert own.problems == []
    assert own.data == {}  # no longer a published set


@pytest.mark.parametrize(
    "text, line",
    [
        (
            "classes = ('a', 'b', 'c', 'd')\nmodel=dict(decode_head=dict(out_channels=3))",
            "model.decode_head.out_channels (child.py:3): 3, but num_classes is 4; leave",
        ),
        (
            "model=dict(decode_head=dict(out_channels=1))",
            "model.decode_head.out_channels (child.py:2): 1 tells two classes apart, but num_",
        ),
        (
            "classes = ('one',)",
            "model.decode_head.num_classes (child.py:2): with a single class nothing is to be",
        ),
        (
            "classes = ('a', 'b', 'c', 'd')\n"
            "model=dict(decode_head=dict(loss_decode=dict(class_weight=[1, 2, 3])))",
            "model.decode_head.loss_decode.class_weight (child.py:3): 3 weights for 4 classes; "
            "write one for each in their order, or class_weight=None",
        ),
        (
            "model=dict(decode_head=dict(loss_decode=dict(_delete_=True, type='FocalLoss', "
            "alpha=[0.5, 0.5])))",
            "model.decode_head.loss_decode.alpha (child.py:2): 2 weights for 3 classes",
        ),
        (
            "model=dict(decode_head=dict(ignore_index=0))",
            "model.decode_head.ignore_index (child.py:2): 0, but what is to be ignored is 255",
        ),
        (
            "model=dict(decode_head=dict(_delete_=True, type='FPNHead', channels=16, "
            "in_channels=[16] * 4, in_index=[0, 1, 2, 3], feature_strides=[4, 8, 16, 32]))",
            "model.decode_head.num_classes (child.py:2): missing; write the number, or classes =",
        ),
    ],
)
def test_classes_of_heads(segmentors, text, line):
    told_once(checked(segmentors, text).problems, line)


def test_weights_of_a_base_are_named_where_they_stand(segmentors):
    weighted = "model=dict(decode_head=dict(loss_decode=dict(class_weight=[1, 2, 3])))"
    segmentors.write("weighted.py", f"_base_ = 'fpn.py'\n{weighted}")
    (problem,) = checked(segmentors, "classes = ('a', 'b')", "weighted").problems
    assert problem.startswith("model.decode_head.loss_decode.class_weight (weighted.py:2): 3 we")
    assert problem.endswith(" (or change model.decode_head.num_classes at child.py:2)")


def test_two_classes_are_worth_a_note(segmentors):
    plan = checked(segmentors, "classes = ('a', 'b')")
    assert plan.problems == []
    assert any("2 classes with an output each" in note for note in plan.notes)
    sigmoid = "dict(_delete_=True, type='CrossEntropyLoss', use_sigmoid=True)"
    pixels = "dict(_delete_=True, type='polaformer.PixelCrossEntropy')"
    for loss in (sigmoid, pixels):
        one = f"model=dict(decode_head=dict(out_channels=1, loss_decode={loss}))"
        assert checked(segmentors, f"classes = ('a', 'b')\n{one}").problems == []


# Losses -----------------------------------------------------------------------------------------


def test_a_loss_is_tried_with_pixels_that_do_not_count(segmentors):
    """mmseg 1.2.2 looks up the class weight of the value 255."""
    loss = "dict(_delete_=True, type='CrossEntropyLoss', class_weight=[1.0, 2.0, 3.0])"
    (problem,) = checked(segmentors, f"model=dict(decode_head=dict(loss_decode={loss}))").problems
    assert problem.startswith("model.decode_head.loss_decode (child.py:2): fails on masks with all")
    assert "IndexError" in problem
    assert "polaformer.PixelCrossEntropy" in problem
    ours = "dict(class_weight=[1.0, 2.0, 3.0])"
    assert checked(segmentors, f"model=dict(decode_head=dict(loss_decode={ours}))").problems == []


def test_hard_pixels_are_chosen_in_the_trial(segmentors):
    text = "model=dict(decode_head=dict(sampler=dict(type='OHEMPixelSampler', {})))"
    assert checked(segmentors, text.format("thresh=0.7, min_kept=9")).problems == []
    told_once(
        checked(segmentors, text.format("tresh=0.7")).problems,
        "model.decode_head.sampler.tresh (child.py:2): OHEMPixelSampler has no keyword 'tresh'; "
        "did you mean 'thresh'?",
    )


@pytest.mark.parametrize(
    "head, line",
    [
        (
            "sampler=dict(type='OHEMPixelSampler', thresh=7)",
            "sampler.thresh (child.py:2): 7; allow",
        ),
        (
            "sampler=dict(type='OHEMPixelSampler', min_kept=1)",
            "sampler.min_kept (child.py:2): 1; allowed: 2 and more",
        ),
        ("threshold=30", "threshold (child.py:2): 30; allowed: 0 to 1"),
    ],
)
def test_values_of_a_head_out_of_range(segmentors, head, line):
    told_once(checked(segmentors, f"model=dict(decode_head=dict({head}))").problems, line)


def test_a_threshold_needs_a_single_output(segmentors):
    plan = checked(segmentors, "model=dict(decode_head=dict(threshold=0.4))")
    assert plan.problems == []
    line = "model.decode_head.threshold (child.py:2): has no effect: with an output for each class"
    assert any(line in note for note in plan.notes), plan.notes


def test_a_bare_assertion_is_told_in_words(segmentors):
    crop = "dict(type='RandomCrop', crop_size=(0, 0))"
    found = checked(segmentors, pipeline("train_dataloader", IMAGE, MASK, crop, PACK)).problems
    told_once(
        [line for line in found if "crop_size" in line],
        "pipeline.2.crop_size (child.py:2): refuses its values: crop_size[0] > 0 and crop_size[1] "
        "> 0 does not hold",
    )


def test_options_of_weights_at_the_top(segmentors):
    found = checked(segmentors, "allow_shape_mismatch = ['decode_head.*']").problems
    told_once(
        found,
        "child.py:2: unknown key 'allow_shape_mismatch'; write load_from=dict(checkpoint=…, "
        "allow_shape_mismatch=…)",
    )


def test_a_list_of_classes_where_the_data_are_absent(segmentors):
    """Only the name of a known set tells how many images there are."""
    text = "dict(dataset=dict(classes=['ground', 'road', 'car']))"
    assert checked(segmentors, f"train_dataloader = {text}").problems == []


# Windows of a test and sizes --------------------------------------------------------------------


@pytest.mark.parametrize(
    "text, line",
    [
        (
            "mode='slides'",
            "model.test_cfg.mode (child.py:2): no test mode is named 'slides'; did you mean "
            "'slide'? allowed: whole, slide",
        ),
        (
            "mode='slide'",
            "model.test_cfg (child.py:2): mode 'slide' needs crop_size; write crop_size=(64, 64)",
        ),
        (
            "mode='slide', crop_size=(64, 64)",
            "model.test_cfg (child.py:2): mode 'slide' needs stride; write stride=(42, 42)",
        ),
        (
            "mode='slide', crop_size=(64, 64), stride=(65, 64)",
            "model.test_cfg.stride (child.py:2): (65, 64) steps over pixels between windows of "
            "(64, 64); write at most (64, 64)",
        ),
        (
            "mode='slide', crop_size=(64, 64), stride=(0, 8)",
            "model.test_cfg.stride (child.py:2): (0, 8); allowed: a height and a width of 1",
        ),
        (
            "mode='slide', crop_sise=(64, 64), crop_size=(64, 64), stride=(8, 8)",
            "model.test_cfg.crop_sise (child.py:2): model.test_cfg has no keyword 'crop_sise'; "
            "did you mean 'crop_size'?",
        ),
    ],
)
def test_windows(segmentors, text, line):
    found = checked(segmentors, f"model=dict(test_cfg=dict({text}))").problems
    assert line in found[0], found
    assert len(found) == 1 + (text == "mode='slide'")


def test_windows_of_another_size_than_trained_are_a_note(segmentors):
    text = "model=dict(test_cfg=dict(crop_size=(96, 96), stride=(64, 64)))"
    plan = checked(segmentors, text, "uper")
    assert plan.problems == []
    assert any("(96, 96), but training sees crops of (64, 64)" in note for note in plan.notes)
    plan = checked(segmentors, "model=dict(test_cfg=dict(crop_size=(64, 64)))")
    assert any("has no effect in mode 'whole'" in note for note in plan.notes)


@pytest.mark.parametrize(
    "text, line, note",
    [
        ("size_divisor=None", "needs size or size_divisor; size=(64, 64)", False),
        ("size=(64, 64)", "only one of size and size_divisor may be given", False),
        (
            "size_divisor=None, size=(32, 64)",
            "(32, 64) is less than crops of (64, 64), so images of a batch may differ; write "
            "size=(64, 64)",
            False,
        ),
        (
            "size_divisor=None, size=(96, 64)",
            "(96, 64) fills up crops of (64, 64) with pixels that count for nothing",
            True,
        ),
        ("seg_pad_val=0", "0, so the filled-up margin is learned as a class; write 255", False),
        ("test_cfg=dict(size_devisor=32)", "did you mean 'size_divisor'?", False),
    ],
)
def test_filling_up(segmentors, text, line, note):
    plan = checked(segmentors, f"model=dict(data_preprocessor=dict({text}))")
    notes = [one for one in plan.notes if one.startswith("model.")]
    told_once(notes if note else plan.problems, line)


# Pipelines --------------------------------------------------------------------------------------

IMAGE = "dict(type='polaformer.LoadImage')"
MASK = "dict(type='polaformer.LoadMask')"
RESIZE = "dict(type='Resize', scale=(96, 64), keep_ratio=True)"
PACK = "dict(type='PackSegInputs')"


def pipeline(loader: str, *steps: str) -> str:
    return f"{loader}=dict(dataset=dict(pipeline=[{', '.join(steps)}]))"


@pytest.mark.parametrize(
    "text, line",
    [
        (
            pipeline("train_dataloader", IMAGE, RESIZE, PACK),
            "train_dataloader.dataset.pipeline (child.py:2): no step loads the masks to learn "
            "from; add it after LoadImage: dict(type='polaformer.LoadMask')",
        ),
        (
            pipeline("train_dataloader", IMAGE, RESIZE, MASK, PACK),
            "train_dataloader.dataset.pipeline.2 (child.py:2): LoadMask stands after Resize, which "
            "changes the image alone then; put it before",
        ),
        (
            pipeline("train_dataloader", IMAGE, MASK, RESIZE, MASK, PACK),
            "train_dataloader.dataset.pipeline.3 (child.py:2): LoadMask loads the masks once more",
        ),
        (
            pipeline("val_dataloader", IMAGE, MASK, RESIZE, PACK),
            "val_dataloader.dataset.pipeline.1 (child.py:2): LoadMask stands before Resize, which "
            "changes the truth too; put it after",
        ),
        (
            pipeline("val_dataloader", IMAGE, RESIZE, PACK),
            "val_dataloader.dataset.pipeline (child.py:2): no step loads the masks to compare with",
        ),
        (
            pipeline(
                "train_dataloader",
                IMAGE,
                "dict(type='LoadAnnotations', reduce_zero_label=True)",
                PACK,
            ),
            "train_dataloader.dataset.pipeline.1 (child.py:2): LoadAnnotations applies "
            "reduce_zero_label past what the data set says about its values; write dict(type=",
        ),
        (
            pipeline(
                "train_dataloader", IMAGE, MASK.replace(")", ", reduce_zero_label=True)"), PACK
            ),
            "LoadMask has no keyword 'reduce_zero_label'",
        ),
        (
            pipeline("train_dataloader", IMAGE, MASK),
            "train_dataloader.dataset.pipeline (child.py:2): no step packs the image and its mask; "
            "end it with dict(type='PackSegInputs')",
        ),
        (
            pipeline(
                "train_dataloader",
                IMAGE,
                MASK,
                f"dict(type='RandomChoice', transforms=[[{RESIZE}], [{MASK}]])",
                PACK,
            ),
            "train_dataloader.dataset.pipeline.2.transforms.1.0 (child.py:2): LoadMask loads",
        ),
        (
            "tta_model=dict(type='polaformer.SegmentationTTA')\n"
            f"tta_pipeline=[{IMAGE}, dict(type='TestTimeAug', transforms=[[{RESIZE}], [{MASK}], "
            f"[dict(type='RandomFlip', prob=0.0), dict(type='RandomFlip', prob=1.0)], [{PACK}]])]",
            "tta_pipeline.1.transforms.1.0 (child.py:3): LoadMask stands before RandomFlip, which",
        ),
    ],
)
def test_where_masks_are_loaded(segmentors, text, line):
    found = checked(segmentors, text).problems
    assert line in found[0], found
    later = [problem for problem in found[1:] if "changes the image alone" not in problem]
    assert later == [], found


@pytest.mark.parametrize(
    "step, hint",
    [
        ("dict(type='RandomCrop', crop_sise=(64, 64))", "crop_size"),
        ("dict(type='RandomCrop', crop_size=(64, 64), cat_max_rato=0.75)", "cat_max_ratio"),
        ("dict(type='PhotoMetricDistorsion')", "PhotoMetricDistortion"),
        ("dict(type='RandomResize', scale=(96, 64), keep_ration=True)", "keep_ratio"),
        ("dict(type='RandomFlip', prop=0.5)", "prob"),
    ],
)
def test_misspelt_transforms(segmentors, step, hint):
    found = checked(segmentors, pipeline("train_dataloader", IMAGE, MASK, step, PACK)).problems
    assert f"did you mean '{hint}'" in found[0], found
    assert all("needs the keyword" in line for line in found[1:]), found


@pytest.mark.parametrize(
    "text, key, hint",
    [
        ("model=dict(type='polaformer.Segmenter')", "model.type", "polaformer.Segmentor"),
        ("model=dict(decode_head=dict(type='FPNHed'))", "model.decode_head.type", "FPNHead"),
        (
            "model=dict(decode_head=dict(feature_stride=[4]))",
            "model.decode_head.feature_stride",
            "feature_strides",
        ),
        (
            "model=dict(decode_head=dict(dropout_ration=0.1))",
            "model.decode_head.dropout_ration",
            "dropout_ratio",
        ),
        (
            "model=dict(decode_head=dict(loss_decode=dict(class_weigth=None)))",
            "model.decode_head.loss_decode.class_weigth",
            "class_weight",
        ),
        (
            "model=dict(decode_head=dict(loss_decode=dict(type='polaformer.PixelCrossEntrop')))",
            "model.decode_head.loss_decode.type",
            "polaformer.PixelCrossEntropy",
        ),
        (
            "model=dict(decode_head=dict(sampler=dict(type='OHEMPixelSample')))",
            "model.decode_head.sampler.type",
            "OHEMPixelSampler",
        ),
        (
            "model=dict(decode_head=dict(norm_cfg=dict(type='SyncBNN')))",
            "model.decode_head.norm_cfg.type",
            "SyncBN",
        ),
        (
            "model=dict(data_preprocessor=dict(size_divisior=32))",
            "model.data_preprocessor.size_divisior",
            "size_divisor",
        ),
        (
            "train_dataloader=dict(dataset=dict(reduce_zero_labels=True))",
            "train_dataloader.dataset.reduce_zero_labels",
            "reduce_zero_label",
        ),
        (
            "train_dataloader=dict(dataset=dict(data_prefix=dict(seg_map='x')))",
            "train_dataloader.dataset",
            "",
        ),
        (
            "val_evaluator=dict(type='polaformer.SegmentationMetrics')",
            "val_evaluator.type",
            "polaformer.SegmentationMetric",
        ),
        ("train_cfg=dict(max_iter=9)", "train_cfg.max_iter", "max_iters"),
        ("train_cfg=dict(val_intervall=9)", "train_cfg.val_intervall", "val_interval"),
        ("param_scheduler=dict(powr=0.9)", "param_scheduler.powr", "power"),
    ],
)
def test_misspelt_words(segmentors, text, key, hint):
    found = checked(segmentors, text).problems
    told = [line for line in found if line.startswith(f"{key} (child.py:2)")]
    assert told, found
    assert f"did you mean '{hint}'" in told[0] or not hint
    assert len(found) == 1, found


def test_misspelt_words_in_a_list_of_losses(segmentors):
    override = "model.decode_head.loss_decode.1.loss_wight=2.0"
    told_once(checked(segmentors, "", "uper", [override]).problems, "did you mean 'loss_weight'?")


# Batches and evaluators -------------------------------------------------------------------------


def test_images_of_several_sizes_in_a_batch(segmentors):
    text = "val_dataloader=dict(batch_size=2)"
    plan = checked(segmentors, text)
    assert plan.problems == []
    assert any("val_dataloader.batch_size (child.py:2): 2 images in a" in n for n in plan.notes)
    write_masks(segmentors.root, "train")
    write_masks(segmentors.root, "val")
    assert checked(segmentors, text).problems == []
    write_masks(segmentors.root, "val", sizes=((96, 64), (64, 96)))
    told_once(
        checked(segmentors, text).problems,
        "val_dataloader.batch_size (child.py:2): 2 images in a batch must have one size, and they "
        "are 64 x 96 and 96 x 64; write 1",
    )
    square = pipeline("val_dataloader", IMAGE, "dict(type='Resize', scale=(64, 64))", MASK, PACK)
    both = f"{text}\nval_dataloader.update({square.partition('=')[2]})"
    assert checked(segmentors, both).problems == []


def coded(loader: str, options: str) -> str:
    return f"{loader} = dict(dataset=dict({options}))"


def test_label_images_read_in_two_ways(segmentors):
    zero = "reduce_zero_label=True"
    told_once(
        checked(segmentors, coded("train_dataloader", zero)).problems,
        "val_dataloader.dataset.reduce_zero_label (data.py:23): is not given, but "
        "train_dataloader.dataset.reduce_zero_label is True: training and evaluation would number",
    )
    both = "\n".join(coded(f"{name}_dataloader", zero) for name in ("train", "val", "test"))
    assert checked(segmentors, both).problems == []
    told_once(
        checked(
            segmentors, coded("val_dataloader = test_dataloader", "label_values=[1, 2, 3]")
        ).problems,
        "val_dataloader.dataset.label_values (child.py:2): is [1, 2, 3], but "
        "train_dataloader.dataset.label_values is not given",
    )
    assert checked(segmentors, coded("train_dataloader", "reduce_zero_label=False")).problems == []
    other = checked(segmentors, coded("train_dataloader", f"data_root='data/other', {zero}"))
    assert other.problems == []
    told_once(
        [note for note in other.notes if "reduce_zero_label" in note],
        "write it in both, unless the files do differ",
    )


def test_one_image_per_process_in_front_of_a_batch_norm(segmentors):
    one = "train_dataloader=dict(batch_size=1)"
    (problem,) = checked(segmentors, one, "uper").problems
    assert problem.startswith(
        "train_dataloader.batch_size (child.py:2): 1 image per process: batch norm at "
        "decode_head.psp_modules.0.1.bn gets one value per channel, which torch refuses"
    )
    assert checked(segmentors, one).problems == []  # no pooling to one value there
    norms = "norm_cfg=dict(_delete_=True, type='GN', num_groups=4)"
    groups = f"{one}\nmodel=dict(decode_head=dict({norms}), auxiliary_head=dict({norms}))"
    assert checked(segmentors, groups, "uper").problems == []


def test_the_rest_of_an_epoch_may_be_one_image(segmentors):
    write_masks(segmentors.root, "train", 5)
    write_masks(segmentors.root, "val")
    epochs = """
train_cfg=dict(_delete_=True, type='polaformer.EpochTrainLoop', max_epochs=3)
train_dataloader=dict(sampler=dict(type='polaformer.EpochSampler'), drop_last={})
param_scheduler=None
"""
    (problem,) = checked(segmentors, epochs.format(False), "uper").problems
    assert problem.startswith("train_dataloader.drop_last (child.py:4): the last batch of an epoch")
    assert checked(segmentors, epochs.format(True), "uper").problems == []


def test_synchronised_norms_in_one_process_are_noted(segmentors):
    text = "model.decode_head.norm_cfg.type (uper.py:11): SyncBN is plain batch norm in a single"
    notes = checked(segmentors, "", "uper").notes
    assert any(note.startswith(text) and "2 images a step" in note for note in notes), notes
    assert not any("SyncBN" in note for note in checked(segmentors, "", "uper", processes=2).notes)


def test_maps_that_nothing_reads(segmentors):
    text = "model=dict(decode_head=dict(in_channels=[32, 64, 96], in_index=[0, 1, 2]))"
    plan = checked(segmentors, text, "uper")
    assert plan.problems == []
    assert any("no head depends on backbone." in note for note in plan.notes), plan.notes
    (problem,) = checked(segmentors, text, "uper", processes=2).problems
    assert problem.startswith("model.backbone.out_indices (uper.py:6): no head depends on backbone")
    allowed = f"{text}\nfind_unused_parameters = True"
    assert checked(segmentors, allowed, "uper", processes=2).problems == []
    neck = (
        "model=dict(decode_head=dict(in_channels=[16] * 3, in_index=[0, 1, 2], "
        "feature_strides=[4, 8, 16]))"
    )
    (problem,) = checked(segmentors, neck, processes=2).problems
    assert problem.startswith("model.decode_head.in_index (child.py:2): no head depends on neck.")


@pytest.mark.parametrize(
    "kind, task", [("CocoMetric", "detection"), ("Accuracy", "classification")]
)
def test_evaluators_of_another_task(segmentors, kind, task):
    told_once(
        checked(segmentors, f"val_evaluator=dict(type='polaformer.{kind}')").problems,
        f"val_evaluator.type (child.py:2): 'polaformer.{kind}' is for {task}, but the model is for "
        "segmentation; write 'polaformer.SegmentationMetric'",
    )


@pytest.mark.parametrize(
    "best, sentence",
    [
        ("auto", None),
        ("mIoU", None),
        ("miou", "did you mean 'mIoU'?"),
        ("bbox_mAP", "validation gives no 'bbox_mAP'"),
    ],
)
def test_the_metric_that_chooses_the_best_checkpoint(segmentors, best, sentence):
    hook = f"dict(type='polaformer.CheckpointHook', rule='greater', save_best='{best}')"
    found = checked(segmentors, f"default_hooks = dict(checkpoint={hook})").problems
    if sentence is None:
        assert found == []
    else:
        told_once(found, sentence)


# Recipes of mmseg -------------------------------------------------------------------------------


RECIPES = (
    "upernet/upernet_r50_4xb4-80k_ade20k-512x512.py",
    "sem_fpn/fpn_r50_4xb4-160k_ade20k-512x512.py",
    "ocrnet/ocrnet_hr18_4xb2-40k_cityscapes-512x1024.py",
    "point_rend/pointrend_r50_4xb2-80k_cityscapes-512x1024.py",
    "stdc/stdc1_4xb12-80k_cityscapes-512x1024.py",
    "mask2former/mask2former_r50_8xb2-160k_ade20k-512x512.py",
    "knet/knet-s3_r50-d8_upernet_8xb2-adamw-80k_ade20k-512x512.py",
    "san/san-vit-b16_coco-stuff164k-640x640.py",
)


@pytest.mark.parametrize("name", RECIPES)
def test_recipes_of_mmseg_are_sound(name):
    """Written by others and in use: whatever is found in them is a false alarm."""
    package = Path(importlib.util.find_spec("mmseg").origin).parent
    path = package / ".mim" / "configs" / name
    if not path.exists():
        pytest.skip("this mmseg comes without its recipes")
    cfg = Config.fromfile(str(path), lazy_import=False)
    found = [f for f in find_mistakes(cfg) if not f.text.startswith("unknown key")]
    for rule in (config_mistakes, mask_loading, iterations.samplers, iterations.schedules):
        found += rule(cfg)
    assert found == []
