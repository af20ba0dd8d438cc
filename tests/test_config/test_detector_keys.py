"""Misspelt types and keywords of mmdet's classes, and sound configs without a finding."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest
from detectors import write_detectors
from mmengine.config import Config

from polaformer.config.check import check_file
from polaformer.config.keys import find_mistakes


@pytest.fixture
def detectors(tree):
    write_detectors(tree)
    return tree


def problems(tree, text: str, base: str = "retina", overrides=()) -> list[str]:
    tree.write("child.py", f"_base_ = '{base}.py'\n{text}")
    return check_file("child.py", overrides, require_data=False, sizes=False).problems


@pytest.mark.parametrize("base", ["retina", "cascade"])
def test_sound_detectors(detectors, base):
    assert problems(detectors, "", base) == []


HEAD = "model.bbox_head"


@pytest.mark.parametrize(
    "text, key, hint",
    [
        ("model=dict(type='RetinNet')", "model.type", "RetinaNet"),
        ("model=dict(neck=dict(type='FPNN'))", "model.neck.type", "FPN"),
        ("model=dict(neck=dict(num_out=5))", "model.neck.num_out", "num_outs"),
        ("model=dict(bbox_head=dict(type='RetinaHaed'))", f"{HEAD}.type", "RetinaHead"),
        # RetinaHead hands what it does not know on to AnchorHead.
        ("model=dict(bbox_head=dict(feat_chanels=8))", f"{HEAD}.feat_chanels", "feat_channels"),
        ("model=dict(bbox_head=dict(stacked_conv=8))", f"{HEAD}.stacked_conv", "stacked_convs"),
        (
            "model=dict(bbox_head=dict(loss_cls=dict(gama=2.0)))",
            f"{HEAD}.loss_cls.gama",
            "gamma",
        ),
        (
            "model=dict(bbox_head=dict(loss_bbox=dict(type='L1Los')))",
            f"{HEAD}.loss_bbox.type",
            "L1Loss",
        ),
        (
            "model=dict(bbox_head=dict(anchor_generator=dict(ratio=[1.0])))",
            f"{HEAD}.anchor_generator.ratio",
            "ratios",
        ),
        (
            "model=dict(bbox_head=dict(bbox_coder=dict(type='DeltaXYWHBoxCoder')))",
            f"{HEAD}.bbox_coder.type",
            "DeltaXYWHBBoxCoder",
        ),
        (
            "model=dict(train_cfg=dict(assigner=dict(type='MaxIOUAssigner')))",
            "model.train_cfg.assigner.type",
            "MaxIoUAssigner",
        ),
        (
            "model=dict(train_cfg=dict(assigner=dict(pos_iou_th=0.5)))",
            "model.train_cfg.assigner.pos_iou_th",
            "pos_iou_thr",
        ),
        (
            "model=dict(train_cfg=dict(sampler=dict(type='PseudoSamplr')))",
            "model.train_cfg.sampler.type",
            "PseudoSampler",
        ),
        ("model=dict(train_cfg=dict(pos_wight=1))", "model.train_cfg.pos_wight", "pos_weight"),
        ("model=dict(test_cfg=dict(score_thrs=0.1))", "model.test_cfg.score_thrs", "score_thr"),
        (
            "model=dict(test_cfg=dict(nms=dict(iou_treshold=0.1)))",
            "model.test_cfg.nms.iou_treshold",
            "iou_threshold",
        ),
        ("model=dict(test_cfg=dict(nms=dict(type='nmss')))", "model.test_cfg.nms.type", "nms"),
        (
            "model=dict(data_preprocessor=dict(bgr_to_rbg=True))",
            "model.data_preprocessor.bgr_to_rbg",
            "bgr_to_rgb",
        ),
        (
            "train_dataloader=dict(batch_sampler=dict(type='AspectRatioBatchSamplr'))",
            "train_dataloader.batch_sampler.type",
            "AspectRatioBatchSampler",
        ),
        (
            "train_dataloader=dict(collate_fn=dict(type='pseudo_colate'))",
            "train_dataloader.collate_fn.type",
            "pseudo_collate",
        ),
        (
            "train_dataloader=dict(dataset=dict(image_without_objects='drop'))",
            "train_dataloader.dataset.image_without_objects",
            "images_without_objects",
        ),
        (
            "val_evaluator=dict(type='polaformer.CocoMetrics')",
            "val_evaluator.type",
            "polaformer.CocoMetric",
        ),
        ("tta_model=dict(type='DetTTAModl')", "tta_model.type", "DetTTAModel"),
        (
            "tta_model=dict(type='DetTTAModel', tta_cfg=dict(nms=dict(tpe='nms')))",
            "tta_model.tta_cfg.nms.tpe",
            "type",
        ),
        (
            "tta_pipeline=[dict(type='TestTimeAug', transforms=[[dict(type='Resize', scal=8)]])]",
            "tta_pipeline.0.transforms.0.0.scal",
            "scale",
        ),
        ("model=dict(neck=dict(act_cfg=dict(type='ReLu')))", "model.neck.act_cfg.type", "ReLU"),
        ("model=dict(neck=dict(norm_cfg=dict(type='GNN')))", "model.neck.norm_cfg.type", "GN"),
        (
            "model=dict(backbone=dict(init_cfg=dict(type='Pretrain', checkpoint='')))",
            "model.backbone.init_cfg.type",
            "Pretrained",
        ),
        (
            "model=dict(neck=dict(upsample_cfg=dict(mod='nearest')))",
            "model.neck.upsample_cfg.mod",
            "mode",
        ),
        ("find_unused_parameter=True", "find_unused_parameter", "find_unused_parameters"),
    ],
)
def test_a_misspelt_word_is_named_with_its_line(detectors, text, key, hint):
    found = problems(detectors, text)
    told = [line for line in found if line.startswith(f"{key} (child.py:2)") or f"'{key}'" in line]
    assert told, found
    assert f"did you mean '{hint}'" in told[0]
    assert all(line == told[0] or "needs the keyword" in line for line in found), found


@pytest.mark.parametrize(
    "step, key, sentence",
    [
        ("dict(type='Resise', scale=(9, 9))", "type", "did you mean 'Resize'"),
        ("dict(type='RandomFlip', prop=0.5)", "prop", "did you mean 'prob'"),
        # mmcv's RandomChoiceResize hands its further keywords to Resize.
        (
            "dict(type='RandomChoiceResize', scales=[(9, 9)], keep_ration=True)",
            "keep_ration",
            "did you mean 'keep_ratio'",
        ),
        (
            "dict(type='RandomFlip', prob=2.0)",
            "prob",
            "refuses its values: 0 <= prob <= 1 do",
        ),
        ("dict(type='LoadAnnotations', with_boxes=True)", "with_boxes", "did you mean 'with_bbox'"),
    ],
)
def test_transforms(detectors, step, key, sentence):
    steps = f"dict(type='polaformer.LoadImage'), {step}, dict(type='PackDetInputs')"
    text = f"train_dataloader=dict(dataset=dict(pipeline=[{steps}]))"
    found = problems(detectors, text)
    where = "train_dataloader.dataset.pipeline.1" + (f".{key}" if key else "")
    assert len(found) == 1, found
    assert found[0].startswith(f"{where} (child.py:2)")
    assert sentence in found[0]


@pytest.mark.parametrize(
    "override, hint",
    [
        ("model.train_cfg.rpn_propsal={}", "rpn_proposal"),
        ("model.train_cfg.rcnn.1.mask_sise=28", "mask_size"),
        ("model.train_cfg.rcnn.1.sampler.pos_fractio=0.1", "pos_fraction"),
        ("model.train_cfg.rpn.allowed_boarder=0", "allowed_border"),
        ("model.test_cfg.rpn.nms_pred=9", "nms_pre"),
        ("model.test_cfg.rcnn.mask_thr_binar=0.5", "mask_thr_binary"),
        ("model.test_cfg.rcnn.nms.min_scor=0.5", "min_score"),
        ("model.roi_head.bbox_head.1.fc_out_chanels=8", "fc_out_channels"),
        ("model.roi_head.mask_head.num_conv=8", "num_convs"),
        ("model.roi_head.bbox_roi_extractor.roi_layer.output_sizes=7", "output_size"),
        ("model.neck.norm_cfg.num_group=4", "num_groups"),
        ("param_scheduler.1.milestone=[1]", "milestones"),
    ],
)
def test_two_stages_on_the_command_line(detectors, override, hint):
    found = problems(detectors, "", "cascade", [override])
    assert len(found) == 1, found
    assert "--cfg-options" in found[0]
    assert f"did you mean '{hint}'" in found[0]


def test_a_key_of_the_wrong_level_has_no_effect_and_is_told(detectors):
    """mmdet reads the score threshold of two stages below rcnn and ignores it above."""
    (problem,) = problems(detectors, "model=dict(test_cfg=dict(score_thr=0.3))", "cascade")
    assert problem.startswith("model.test_cfg.score_thr (child.py:2): ")
    assert "it takes rpn, rcnn" in problem


def test_classes_of_the_users_own_may_read_further_keys(detectors, monkeypatch):
    detectors.write("own_heads.py", "")
    monkeypatch.syspath_prepend(detectors.root)
    text = "custom_imports=dict(imports=['own_heads'])\nmodel=dict(test_cfg=dict({}=1))"
    assert problems(detectors, text.format("temperature")) == []
    (problem,) = problems(detectors, text.format("score_th"))
    assert "did you mean 'score_thr'?" in problem


OTHERS = (
    "fcos/fcos_r50-caffe_fpn_gn-head_1x_coco.py",
    "atss/atss_r50_fpn_1x_coco.py",
    "detr/detr_r50_8xb2-150e_coco.py",
    "vfnet/vfnet_r50-mdconv-c3-c5_fpn_ms-2x_coco.py",
    "htc/htc_r50_fpn_1x_coco.py",
    "yolox/yolox_s_8xb8-300e_coco.py",
    "swin/mask-rcnn_swin-t-p4-w7_fpn_amp-ms-crop-3x_coco.py",
    "point_rend/point-rend_r50-caffe_fpn_ms-1x_coco.py",
)


@pytest.mark.parametrize("name", OTHERS)
def test_recipes_of_mmdet_are_sound(name):
    """Written by others and in use: whatever is found in them is a false alarm."""
    package = Path(importlib.util.find_spec("mmdet").origin).parent
    path = package / ".mim" / "configs" / name
    if not path.exists():
        pytest.skip("this mmdet comes without its recipes")
    cfg = Config.fromfile(str(path), lazy_import=False)
    found = [f for f in find_mistakes(cfg) if not f.text.startswith("unknown key")]
    assert found == []


def test_configs_inside_other_packages_are_refused(tree):
    tree.write("child.py", "_base_ = 'mmdet::retinanet/retinanet_r50_fpn_1x_coco.py'\n")
    (problem,) = check_file("child.py", sizes=False).problems
    assert problem.startswith("child.py:1: _base_ 'mmdet::")
    assert "not supported" in problem


@pytest.mark.parametrize(
    "text, line",
    [
        (
            "train_dataloader=dict(dataset=dict(min_size=-3))",
            "train_dataloader.dataset.min_size (child.py:2): -3; allowed: 0 and more",
        ),
        (
            "val_dataloader=dict(dataset=dict(pipeline=[dict(type='polaformer.LoadImage')]))",
            "val_dataloader.dataset.pipeline (child.py:2): no step packs the image and its boxes; "
            "end it with dict(type='PackDetInputs')",
        ),
        (
            "param_scheduler=[dict(type='MultiStepLR', milestones=[20, 30])]",
            "param_scheduler.0.milestones (child.py:2): 20, 30 never come: training ends after 12",
        ),
        (
            "val_dataloader=dict(dataset=dict(data_prefix=dict(_delet_=True, img='val')))",
            "val_dataloader.dataset.data_prefix._delet_ (child.py:2): no instruction for merging "
            "is named so; did you mean '_delete_'?",
        ),
        (
            "model=dict(test_cfg=dict(nms_pre='x'))",
            "model.test_cfg.nms_pre (child.py:2): nms_pre expects int, got 'x'",
        ),
        (
            "model=dict(test_cfg=dict(score_thr='a'))",
            "model.test_cfg.score_thr (child.py:2): score_thr expects float, got 'a'",
        ),
        (
            "model=dict(neck=dict(_delet_=True, num_outs=5))",
            "model.neck._delet_ (child.py:2): no instruction for merging",
        ),
    ],
)
def test_what_used_to_pass(detectors, text, line):
    (problem,) = problems(detectors, text)
    assert problem.startswith(line)


@pytest.mark.parametrize(
    "override, line",
    [
        ("model.test_cfg.rcnn.nms.iou_threshold='b'", "iou_threshold expects float, got 'b'"),
        ("model.train_cfg.rcnn.0.pos_weight='c'", "pos_weight expects float, got 'c'"),
        (
            "model.roi_head.num_stages=3",
            "model.roi_head.num_stages (--cfg-options): 3, but there are 2 of roi_head.bbox_head, "
            "2 of roi_head.stage_loss_weights, 2 of train_cfg.rcnn",
        ),
        (
            "model.roi_head.stage_loss_weights=[1, 0.5, 0.25]",
            "model.roi_head.stage_loss_weights (--cfg-options): 3 entries, but "
            "roi_head.num_stages is 2; each stage needs one",
        ),
    ],
)
def test_values_and_stages(detectors, override, line):
    (problem,) = problems(detectors, "", "cascade", [override])
    assert line in problem


def test_a_pipeline_may_pack_at_any_depth_and_after_a_mixture(detectors):
    packing = "dict(type='MultiBranch', branch_field=['sup'], sup=[dict(type='PackDetInputs')])"
    load = "dict(type='polaformer.LoadImage')"
    assert (
        problems(
            detectors,
            f"""
val_dataloader = dict(dataset=dict(pipeline=[{load}, {packing}]))
train_dataloader = dict(dataset=dict(_delete_=True, type='MultiImageMixDataset',
    dataset=dict(type='polaformer.CocoDataset', data_root='data/toy', ann_file='train.json',
                 pipeline=[{load}, dict(type='LoadAnnotations', with_bbox=True)]),
    pipeline=[dict(type='RandomFlip', prob=0.5), dict(type='PackDetInputs')]))
""",
        )
        == []
    )


def test_a_mistake_beside_another_in_the_optimizer(detectors):
    text = "optim_wrapper=dict(clip_grad=dict(max_nrm=1), paramwise_cfg=dict(decay_rul='usual'))"
    found = problems(detectors, text)
    assert len(found) == 3
    assert any("did you mean 'max_norm'?" in problem for problem in found)
    assert any("needs the keyword 'max_norm'" in problem for problem in found)
    assert any("did you mean 'decay_rule'?" in problem for problem in found)
