from __future__ import annotations

import pytest

from polaformer.config.load import load_config, where
from polaformer.errors import UserError


def message(path, overrides=(), **presets) -> str:
    with pytest.raises(UserError) as caught:
        load_config(path, overrides, **presets)
    return str(caught.value)


def test_recipe_loads_without_its_helper_variables(tree):
    cfg = load_config("recipe.py")
    assert cfg.train_dataloader.dataset.root == "data/toy"
    assert cfg.model.head.num_classes == 3
    assert "data_root" not in cfg
    assert "num_classes" not in cfg
    assert cfg.work_dir == "work_dirs/recipe"


def test_dumped_config_loads_again_and_is_equal(tree):
    cfg = load_config("recipe.py", ["train_cfg.max_epochs=7"])
    cfg.dump("config.py")
    assert load_config("config.py").to_dict() == cfg.to_dict()


def test_misspelt_key_in_a_file_names_key_line_and_nearest(tree):
    tree.child("modle = dict(backbone=dict(window_size=14))")
    text = message("child.py")
    assert "modle" in text
    assert "child.py:2" in text
    assert "did you mean 'model'?" in text


def test_misspelt_key_on_the_command_line(tree):
    text = message("recipe.py", ["modle.backbone.window_size=14"])
    assert "--cfg-options" in text
    assert "modle" in text
    assert "'model'" in text


def test_a_dict_may_replace_none_of_a_base(tree):
    tree.child("optim_wrapper = dict(clip_grad=dict(max_norm=1))")
    assert load_config("child.py").optim_wrapper.clip_grad == {"max_norm": 1}


def test_a_dict_may_replace_a_string_and_the_reverse(tree):
    tree.write("_base_/model.py", "model = dict(type='polaformer.PolaPVT', attention='pola')")
    tree.child("model = dict(attention=dict(type='pola', alpha=3))")
    assert load_config("child.py").model.attention == {"type": "pola", "alpha": 3}
    tree.write(
        "_base_/model.py", "model = dict(type='polaformer.PolaPVT', attention=dict(type='pola'))"
    )
    tree.child("model = dict(attention='softmax')")
    assert load_config("child.py").model.attention == "softmax"


def test_misspelt_keyword_inside_a_typed_dict(tree):
    tree.child("model = dict(\n    backbone=dict(img_siz=14),\n)")
    text = message("child.py")
    assert "model.backbone.img_siz (child.py:3)" in text
    assert "did you mean 'img_size'?" in text


def test_all_mistakes_are_told_at_once(tree):
    tree.child(
        """
        modle = 1
        train_cfg = dict(max_epoch=3)
        train_dataloader = dict(num_worker=2)
        default_hooks = dict(chekpoint=dict(interval=3))
        """
    )
    text = message("child.py")
    assert len(text.splitlines()) == 4
    for nearest in ("'model'", "'max_epochs'", "'num_workers'", "'checkpoint'"):
        assert nearest in text


def test_unknown_type_names_the_nearest(tree):
    tree.child("model = dict(backbone=dict(type='polaformer.PolaPVTT'))")
    assert "did you mean 'polaformer.PolaPVT'?" in message("child.py")


def test_keywords_left_behind_by_a_change_of_type_advise_delete(tree):
    tree.child("optim_wrapper = dict(optimizer=dict(type='SGD', momentum=0.9))")
    text = message("child.py")
    assert "SGD has no keyword 'betas'" in text
    assert "_delete_=True" in text
    assert "child.py:2" in text
    tree.child("optim_wrapper = dict(optimizer=dict(_delete_=True, type='SGD', lr=0.1))")
    assert load_config("child.py").optim_wrapper.optimizer == {"type": "SGD", "lr": 0.1}


def test_delete_without_a_base_value_leaves_no_trace(tree):
    tree.child("custom_hooks = [dict(type='EMAHook', _delete_=True)]\nval_cfg=dict(_delete_=True)")
    cfg = load_config("child.py")
    assert cfg.custom_hooks == [{"type": "EMAHook"}]
    assert cfg.val_cfg == {}


def test_helper_of_a_base_set_in_a_child_has_no_effect_and_says_so(tree):
    tree.child("data_root = 'elsewhere'")
    text = message("child.py")
    assert "'data_root' has no effect here" in text
    assert "set train_dataloader.dataset.root instead" in text
    text = message("recipe.py", ["data_root=elsewhere"])
    assert "--cfg-options data_root" in text
    assert "train_dataloader.dataset.root" in text


def test_helper_read_through_base_is_accepted(tree):
    tree.write("_base_/data.py", "unused = 5\ntrain_dataloader = None")
    assert "unknown key 'unused'" in message("recipe.py")
    tree.child("train_cfg = dict(max_epochs={{_base_.unused}})")
    assert load_config("child.py").train_cfg.max_epochs == 5
    tree.child("train_cfg = dict(max_epochs=_base_.unused + 1)")
    assert load_config("child.py").train_cfg.max_epochs == 6


def test_environment_variables_and_python_in_a_config(tree, monkeypatch):
    monkeypatch.setenv("EPOCHS", "4")
    tree.child(
        """
        import os
        def double(x):
            return 2 * x
        steps = [1, 2]
        for step in steps:
            last = double(step)
        train_cfg = dict(max_epochs={{$EPOCHS:9}}, val_interval=last)
        """
    )
    cfg = load_config("child.py")
    assert cfg.train_cfg.max_epochs == 4
    assert cfg.train_cfg.val_interval == 4
    assert not {"os", "double", "steps", "step", "last"} & set(cfg)


@pytest.mark.parametrize(
    "name, text, parts",
    [
        ("broken.py", "model = dict(\n", ["broken.py:1"]),
        ("broken.py", "x = [1\ny = 2\n", ["broken.py:1", "'[' was never closed"]),
        ("lazy.py", "with read_base():\n    from .base import *\n", ["lazy.py:1", "lazy config"]),
        ("lazy.py", "from .base import model\n", ["lazy.py:1", "lazy config"]),
        ("child.py", "_base_ = './recip.py'\n", ["child.py:1", "did you mean", "recipe.py"]),
        ("child.py", "_base_ = ['./recipe.py',\n '../no/x.py']\n", ["child.py:2", "not exist"]),
        ("child.py", "_base_ = './_base_'\n", ["child.py:1", "folder", "model.py"]),
        ("child.py", "_base_ = 'mmdet::x.py'\n", ["child.py:1", "not supported"]),
        ("child.py", "_base_ = 5\n", ["child.py:1", "literal path"]),
        ("loop.py", "_base_ = './loop.py'\n", ["loop.py:1", "circular", "loop.py -> loop.py"]),
        ("child.py", "x = 1\nmodel = dict(a=y)\n", ["child.py:2", "NameError"]),
        ("child.py", "x = 1\nmodel = x['a']\n", ["child.py:2", "TypeError"]),
    ],
)
def test_a_file_that_cannot_be_read_is_one_line(tree, name, text, parts):
    tree.write(name, text)
    found = message(name)
    assert len(found.splitlines()) == 1
    for part in parts:
        assert part in found


def test_missing_file_folder_and_other_formats(tree):
    assert "did you mean 'recipe.py'?" in message("recip.py")
    assert "is a folder" in message("_base_")
    tree.write("recipe.yaml", "model: 1")
    assert "Python text files" in message("recipe.yaml")
    assert "does not exist" in message("nowhere/deep/recipe.py")


def test_two_bases_with_the_same_key_are_named(tree):
    tree.write("_base_/second.py", "randomness = dict(seed=1)")
    tree.write("twice.py", "_base_ = ['_base_/runtime.py', '_base_/second.py']")
    text = message("twice.py")
    assert "'randomness'" in text
    assert "_base_/runtime.py:6" in text
    assert "_base_/second.py:1" in text


def test_paths_of_bases_are_relative_to_the_file(tree, monkeypatch, tmp_path):
    other = tmp_path / "elsewhere"
    other.mkdir()
    monkeypatch.chdir(other)
    cfg = load_config("../recipe.py")
    assert cfg.train_cfg.max_epochs == 10


def test_presets(tree):
    cfg = load_config("recipe.py", work_dir="out", amp="bf16", seed=7, deterministic=True)
    assert cfg.work_dir == "out"
    assert cfg.optim_wrapper.type == "AmpOptimWrapper"
    assert cfg.optim_wrapper.dtype == "bfloat16"
    assert cfg.randomness == {"seed": 7, "deterministic": True}
    assert load_config("recipe.py", resume=True).resume is True
    tree.write("epoch_3.pth", "")
    cfg = load_config("recipe.py", resume="epoch_3.pth")
    assert (cfg.resume, cfg.load_from) == (True, "epoch_3.pth")
    assert "did you mean 'epoch_3.pth'?" in message("recipe.py", resume="epoch_4.pth")
    assert "bf16 or fp16" in message("recipe.py", amp="int8")


def test_where_tells_file_line_and_command_line(tree):
    tree.child("model = dict(backbone=dict(drop_path_rate=0.2))")
    cfg = load_config("child.py", ["train_cfg.max_epochs=3"])
    assert where(cfg, "model.backbone.drop_path_rate") == "child.py:2"
    assert where(cfg, "model.backbone.arch") == "_base_/model.py:4"
    assert where(cfg, "train_cfg.max_epochs") == "--cfg-options"


def test_hooks_of_the_runner_may_be_changed_without_their_type(tree):
    tree.child("runner_type = 'polaformer.Runner'\ndefault_hooks = dict(health=dict(max_bad=3))")
    text = message("child.py")
    assert "HealthHook has no keyword 'max_bad'; did you mean 'max_bad_steps'?" in text
    tree.child("runner_type = 'polaformer.Runner'")
    cfg = load_config("child.py", ["default_hooks.health.max_bad_steps=3"])
    assert cfg.default_hooks.health == {"max_bad_steps": 3}
    tree.child("default_hooks = dict(health=dict(max_bad_steps=3))")
    assert "no default hook has this name" in message("child.py")


def test_single_values_at_the_top(tree):
    assert "resume (--cfg-options): expects True, False or 'auto'" in message(
        "recipe.py", ["resume=ture"]
    )
    assert "load_from (--cfg-options): expects a path" in message("recipe.py", ["load_from=5"])
    assert load_config("recipe.py", ["resume=auto"]).resume == "auto"
    options = "load_from=dict(checkpoint='a.pth', prefer_em=True)"
    assert "did you mean 'prefer_ema'?" in message("recipe.py", [options])


def test_a_module_that_cannot_be_imported_is_named_with_its_line(tree):
    tree.child("custom_imports = dict(imports=['no_such_module'])")
    text = message("child.py")
    assert text.startswith("child.py:2: custom_imports:")
    assert "no_such_module" in text
    assert len(text.splitlines()) == 1


def test_a_linked_config_keeps_its_name(tree):
    (tree.root / "mine.py").symlink_to(tree.root / "recipe.py")
    assert load_config("mine.py").work_dir == "work_dirs/mine"


@pytest.mark.parametrize(
    "text, message",
    [
        (
            "custom_imports = 'x'",
            "child.py:3: custom_imports expects dict(imports=['my_module', …])",
        ),
        (
            "custom_imports = dict(import_=['x'])",
            "child.py:3: custom_imports expects dict(imports=",
        ),
        ("custom_imports = dict(imports=5)", "child.py:3: custom_imports expects dict(imports="),
        (
            "custom_hooks = dict(type='EMAHook')",
            "child.py:3: custom_hooks is a dict here; a list is expected, as in [dict(type=…)]",
        ),
        (
            "param_scheduler = dict(end=3)",
            "child.py:3: param_scheduler is a dict here, but a base has a list there; write a list",
        ),
    ],
)
def test_a_dict_where_a_base_or_mmengine_wants_something_else(tree, text, message):
    tree.write("hooks.py", "_base_ = './recipe.py'\ncustom_hooks = []")
    tree.write("child.py", f"_base_ = './hooks.py'\n\n{text}")
    with pytest.raises(UserError) as caught:
        load_config("child.py")
    assert str(caught.value).startswith(message)
    assert "Traceback" not in str(caught.value)
