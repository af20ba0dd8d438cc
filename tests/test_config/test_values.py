from __future__ import annotations

import pytest

from polaformer.config.check import check_file
from polaformer.config.load import load_config
from polaformer.config.values import CHOICES
from polaformer.datasets.image_folder import CHECKS
from polaformer.errors import UserError


@pytest.mark.parametrize(
    "text, line",
    [
        (
            "randomness = dict(seed=-1)",
            "randomness.seed (child.py:2): -1; allowed: 0 to 4294967295",
        ),
        ("randomness = dict(seed='a')", "randomness.seed (child.py:2): 'a'; allowed: 0 to"),
        ("log_level = 'LOUD'", "log_level (child.py:2): 'LOUD'; allowed: DEBUG, INFO"),
        ("log_level = 'WARN1NG'", "did you mean 'WARNING'?"),
        ("launcher = 'foo'", "launcher (child.py:2): 'foo'; allowed: none, pytorch"),
        ("auto_scale_lr = dict(base_batch_size=0)", "base_batch_size (child.py:2): 0; allowed: 1"),
        ("auto_scale_lr = dict(base_batch_size='a')", "base_batch_size"),
        ("optim_wrapper = dict(accumulative_counts=0)", "counts (child.py:2): 0; allowed: 1 and"),
        (
            "optim_wrapper = dict(type='AmpOptimWrapper', dtype='float61')",
            "optim_wrapper.dtype (child.py:2): 'float61'; did you mean 'float64'?",
        ),
        (
            "optim_wrapper = dict(clip_grad=dict(max_norm=-1))",
            "optim_wrapper.clip_grad.max_norm (child.py:2): -1; allowed: above 0",
        ),
        (
            "model = dict(data_preprocessor=dict(type='polaformer.ClsPreprocessor', "
            "random_erasing=dict(prob=3)))",
            "model.data_preprocessor.random_erasing.prob (child.py:2): 3; allowed: 0 to 1",
        ),
        (
            "default_hooks = dict(checkpoint=dict(max_keep_ckpts=0))",
            "max_keep_ckpts (child.py:2): 0; allowed: 1 and more, or -1 for all",
        ),
        ("work_dir = 5", "work_dir (child.py:2): expects a path, got 5"),
        ("default_scope = 'polaform'", "did you mean 'polaformer'?"),
        ("default_scope = 'foo'", "default_scope (child.py:2): no package 'foo' with registries"),
        (
            "train_dataloader = dict(dataset=dict(check='deep'))",
            "train_dataloader.dataset.check (child.py:2): 'deep'; did you mean 'decode'?",
        ),
        ("log_level = []", "log_level (child.py:2): expects str, got []"),
        ("default_scope = []", "default_scope (child.py:2): expects str, got []"),
        ("env_cfg = dict(mp_cfg=dict(mp_start_method='x'))", "'x'; allowed: fork, spawn"),
        ("log_processor = dict(by_epoch='x')", "by_epoch (child.py:2): expects True or False"),
        ("compile = 5", "compile (child.py:2): expects True, False, a dict, got 5"),
        ("sync_bn = 5", "sync_bn (child.py:2): expects 'torch', 'mmcv' or None, got 5"),
    ],
)
def test_a_value_out_of_range(tree, text, line):
    tree.child(text)
    found = check_file("child.py", require_data=False).problems
    assert len(found) == 1, found
    assert line in found[0]
    with pytest.raises(UserError) as caught:
        load_config("child.py")
    assert line in str(caught.value)


@pytest.mark.parametrize(
    "text",
    [
        "randomness = dict(seed=4294967295)",
        "randomness = dict(seed=None)",
        "log_level = 'NOTSET'",
        "default_scope = 'mmengine'",
        "optim_wrapper = dict(clip_grad=dict(max_norm=1))",
        "default_hooks = dict(checkpoint=dict(max_keep_ckpts=-1))",
        "train_dataloader = dict(dataset=dict(check=None))",
        "optim_wrapper = dict(type='AmpOptimWrapper', dtype='bfloat16')",
    ],
)
def test_the_ends_of_a_range_are_in_it(tree, text):
    tree.child(text)
    load_config("child.py")


@pytest.mark.parametrize("seed", [-1, 99999999999])
def test_a_seed_on_the_command_line(tree, seed):
    with pytest.raises(UserError, match=f"--seed {seed}: expected a number from 0 to 4294967295"):
        load_config("recipe.py", seed=seed)


def test_the_checks_are_those_of_the_data_set():
    assert CHOICES["train_dataloader.dataset.check"] == CHECKS
