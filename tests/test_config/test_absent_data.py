"""Data that are not on this machine, and mistakes beside them."""

from __future__ import annotations

import pytest
from detectors import write_coco, write_detectors

from polaformer.config.check import check_file

COCO = """
train_dataloader = dict(dataset=dict(data_root='data/coco',
    ann_file='annotations/instances_train2017.json'))
val_dataloader = test_dataloader = dict(dataset=dict(data_root='data/coco',
    ann_file='annotations/instances_val2017.json'))
model = dict(bbox_head=dict(num_classes=80))
"""
REPEATED = """
train_dataloader = dict(dataset=dict(_delete_=True, type='RepeatDataset', times=2, dataset=dict(
    type='polaformer.CocoDataset', data_root='data/toy', ann_file='train.json', {}
    pipeline=[dict(type='polaformer.LoadImage'), dict(type='LoadAnnotations', with_bbox=True),
              dict(type='PackDetInputs')])))
"""


@pytest.fixture
def detectors(tree):
    write_detectors(tree)
    return tree


def checked(tree, text: str, **options):
    tree.write("child.py", f"_base_ = 'retina.py'\n{text}")
    return check_file("child.py", sizes=False, **{"require_data": False, **options})


@pytest.mark.parametrize(
    "change, sentence",
    [
        ("images_without_objects='drops'", "images_without_objects"),
        ("data_prefix=dict(imgs='train2017/')", "the only one is img"),
    ],
)
def test_a_mistake_in_absent_data_is_a_problem(detectors, change, sentence):
    wrong = COCO.replace("data_root='data/coco'", f"data_root='data/coco', {change}", 1)
    (problem,) = checked(detectors, wrong).problems
    assert problem.startswith("train_dataloader.dataset")
    assert sentence in problem
    assert checked(detectors, COCO).problems == []


def test_data_inside_of_other_data(detectors):
    plan = checked(detectors, REPEATED.format(""))
    assert plan.problems == []
    assert any("data/README.md says how to get it" in note for note in plan.notes), plan.notes
    write_coco(detectors.root, "val")
    write_coco(detectors.root, "train")
    plan = checked(detectors, REPEATED.format(""))
    assert plan.problems == []
    assert (plan.data["train"].images, plan.data["train"].where) == (8, "data/toy")
    (problem, *_) = checked(detectors, REPEATED.format("classes=('cat', 'cow'),")).problems
    assert problem.startswith("train_dataloader.dataset (child.py:3): ")
    assert "cow" in problem


FOREIGN = """
classes = ('cat', 'dog')
train_dataloader = dict(dataset=dict(_delete_=True, type='CocoDataset', data_root='data/coco',
    ann_file='annotations/instances_train2017.json', data_prefix=dict(img='train2017/'),
    pipeline=[dict(type='PackDetInputs')]))
val_dataloader = test_dataloader = dict(dataset=dict(data_root='data/coco',
    ann_file='annotations/instances_val2017.json'))
"""


def test_two_classes_of_absent_coco(detectors):
    assert checked(detectors, FOREIGN).problems == []


ANNOTATIONS = "val_evaluator = dict(_delete_=True, type='CocoMetric', ann_file='{}')"


def test_a_metric_with_a_file_of_its_own(detectors):
    write_coco(detectors.root, "train")
    write_coco(detectors.root, "val")
    text = ANNOTATIONS.format("data/none.json")
    plan = checked(detectors, text)
    assert plan.problems == []
    note = "val_evaluator.ann_file (child.py:2): 'data/none.json' does not exist"
    assert note in plan.notes
    assert checked(detectors, text, require_data=True).problems == [note]


def test_nothing_is_printed_by_the_check(detectors, capfd):
    write_coco(detectors.root, "train")
    write_coco(detectors.root, "val")
    assert checked(detectors, ANNOTATIONS.format("data/toy/val.json")).problems == []
    assert capfd.readouterr().out == ""
