from __future__ import annotations

import pytest

from polaformer.config.check import check_file
from polaformer.config.load import load_config
from polaformer.errors import UserError


@pytest.mark.parametrize(
    "text, line",
    [
        (
            "custom_hooks = [dict(tpe='EMAHook')]",
            "custom_hooks.0 (child.py:2): a dict here needs the key 'type'; 'tpe' looks like it",
        ),
        ("custom_hooks = [5]", "custom_hooks.0 (child.py:2): expects a dict with type, got 5"),
        ("custom_hooks = ['EMAHook']", "custom_hooks.0 (child.py:2): expects a dict with type"),
        ("default_hooks = dict(logger='foo')", "default_hooks.logger (child.py:2): expects a dict"),
        ("train_dataloader = dict(dataset=[1])", "dataset (child.py:2): expects a dict with type"),
        ("train_dataloader = dict(dataset=None)", "dataset (child.py:2): expects a dict with type"),
        ("train_dataloader = dict(sampler=5)", "sampler (child.py:2): expects a dict with type"),
        ("train_dataloader = dict(collate_fn=5)", "collate_fn (child.py:2): expects a dict with"),
        ("train_dataloader = dict(collate_fn={})", "collate_fn (child.py:2): a dict here needs"),
        ("optim_wrapper = dict(optimizer=5)", "optimizer (child.py:2): expects a dict with type"),
        (
            "optim_wrapper = dict(optimizer=dict(_delete_=True, lr=1.0))",
            "optim_wrapper.optimizer (child.py:2): a dict here needs the key 'type'",
        ),
        ("optim_wrapper = dict(paramwise_cfg=5)", "paramwise_cfg (child.py:2): expects a dict"),
        ("param_scheduler = [5]", "param_scheduler.0 (child.py:2): expects a dict with type"),
        (
            "param_scheduler = [dict(by_epoch=True)]",
            "param_scheduler.0 (child.py:2): a dict here needs the key 'type'",
        ),
        ("visualizer = dict(vis_backends=[5])", "vis_backends.0 (child.py:2): expects a dict"),
        ("model = dict(data_preprocessor=5)", "data_preprocessor (child.py:2): expects a dict"),
        ("env_cfg = dict(mp_cfg=5)", "env_cfg.mp_cfg (child.py:2): expects a dict"),
        ("train_cfg = dict(_delete_=True, type='foo')", "train_cfg.type (child.py:2): no loop is"),
    ],
)
def test_a_value_of_another_shape(tree, text, line):
    tree.child(text)
    found = check_file("child.py", require_data=False, sizes=True).problems
    assert any(line in problem for problem in found), found
    with pytest.raises(UserError) as caught:
        load_config("child.py")
    assert line in str(caught.value)


def test_nothing_is_asked_of_what_may_be_left_out(tree):
    tree.child("default_hooks = dict(logger=None)\ncustom_hooks = []\nparam_scheduler = None")
    assert load_config("child.py").default_hooks.logger is None


def test_schedulers_by_the_name_of_their_optimiser(tree):
    kind = "dict(type='LinearLR', start_factor=0.1)"
    tree.child(f"param_scheduler = dict(generator={kind}, discriminator=[{kind}])", "many.py")
    tree.write(
        "many.py",
        f"_base_ = ['_base_/runtime.py', '_base_/data.py', '_base_/model.py']\n"
        f"param_scheduler = dict(generator={kind}, discriminator=[{kind}])",
    )
    load_config("many.py")


def test_an_evaluator_with_a_list_of_metrics_needs_no_type(tree):
    metrics = "[dict(type='polaformer.Accuracy')]"
    tree.child(f"val_evaluator = dict(metrics={metrics})")
    assert len(load_config("child.py").val_evaluator.metrics) == 1
