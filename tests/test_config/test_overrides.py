from __future__ import annotations

import pytest

from polaformer.config.literal import parse_assignment, parse_value
from polaformer.config.load import load_config
from polaformer.errors import UserError


@pytest.mark.parametrize(
    "text, value",
    [
        ("5", 5),
        ("-1e-3", -1e-3),
        ("true", True),
        ("False", False),
        ("None", None),
        ("'5'", "5"),
        ("pola", "pola"),
        ("LLSS", "LLSS"),
        ("pola*7+softmax", "pola*7+softmax"),
        ("data/imagenet", "data/imagenet"),
        ("1,2", (1, 2)),
        ("[1, [a, b.c], None]", [1, ["a", "b.c"], None]),
        ("dict(type='pola', alpha=3)", {"type": "pola", "alpha": 3}),
        ("{'a': [1]}", {"a": [1]}),
        ("__import__('os').getcwd()", "__import__('os').getcwd()"),
        ("", ""),
        ("[1, 2", "[1, 2"),
    ],
)
def test_values_are_literals(text, value):
    found = parse_value(text)
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize("text", ["max_epochs", "=5", "a..b=1", ".a=1"])
def test_an_override_without_key_or_value(text):
    with pytest.raises(UserError, match="--cfg-options"):
        parse_assignment(text)


def dig(node, key: str):
    for part in key.split("."):
        node = node[int(part)] if isinstance(node, list) else node[part]
    return node


@pytest.mark.parametrize(
    "text, value",
    [
        ("train_cfg.max_epochs=3", 3),
        ("param_scheduler.0.end=5", 5),
        ("optim_wrapper.optimizer.lr=1", 1.0),
        ("optim_wrapper.optimizer.betas=[0.8,0.9]", (0.8, 0.9)),
        ("optim_wrapper.clip_grad.max_norm=5", 5),
        ("model.backbone.attention=softmax", "softmax"),
        ("model.backbone.attention.type=pola", "pola"),
        ("model.backbone.img_size=(64,96)", (64, 96)),
        ("model.backbone.drop_path_rate=None", None),
        ("default_hooks.checkpoint.save_best=top1", "top1"),
        ("default_hooks.checkpoint=None", None),
        ("auto_scale_lr.enable=True", True),
        ("load_from=work/x.pth", "work/x.pth"),
        ("train_dataloader.persistent_workers=False", False),
    ],
)
def test_accepted(tree, text, value):
    found = dig(load_config("recipe.py", [text]), text.partition("=")[0])
    assert found == value
    assert type(found) is type(value)


def test_a_whole_dict_may_be_given(tree):
    cfg = load_config("recipe.py", ["model.backbone.attention={'type':'pola','alpha':3}"])
    assert cfg.model.backbone.attention.alpha == 3


@pytest.mark.parametrize(
    "text, parts",
    [
        ("train_cfg.max_epochs=ten", ["max_epochs expects int, got 'ten'"]),
        ("train_cfg.max_epochs=1.5", ["max_epochs expects int, got 1.5"]),
        ("train_cfg.by_epoch=1", ["by_epoch expects bool, got 1"]),
        ("optim_wrapper.optimizer.lr=fast", ["lr expects", "got 'fast'"]),
        ("train_cfg.max_epoch=3", ["train_cfg.max_epoch", "did you mean 'max_epochs'?"]),
        ("param_scheduler.2.end=5", ["'param_scheduler' has 2 entries (0 to 1)"]),
        ("param_scheduler.first.end=5", ["is a list", "param_scheduler.0"]),
        ("param_scheduler.0.ent=5", ["LinearLR has no keyword 'ent'", "'end'"]),
        ("optim_wrapper.optimizer.betas=0.9", ["betas expects", "got 0.9"]),
        ("model.backbone.drop_path_rat=0.1", ["did you mean 'drop_path_rate'?"]),
        ("model.backbone.arch.depth=3", ["model.backbone.arch' is 'nano'"]),
        ("model.backbone=5", ["backbone expects dict, got 5"]),
        ("model.bckbone.arch=tiny", ["did you mean 'backbone'?"]),
        ("default_hooks.chekpoint.interval=3", ["did you mean 'checkpoint'?"]),
        ("optim_wrapper.clip_grad.max_nrm=5", ["did you mean 'max_norm'?"]),
        ("epochs=3", ["unknown key 'epochs'"]),
    ],
)
def test_refused(tree, text, parts):
    with pytest.raises(UserError) as caught:
        load_config("recipe.py", [text])
    assert "--cfg-options" in str(caught.value)
    for part in parts:
        assert part in str(caught.value)


def test_a_new_type_is_known_to_the_next_override(tree):
    base = ["optim_wrapper.optimizer.type=SGD"]
    with pytest.raises(UserError, match="SGD has no keyword 'betas'"):
        load_config("recipe.py", base)
    whole = [
        "optim_wrapper.optimizer=dict(type='SGD', lr=0.1)",
        "optim_wrapper.optimizer.momentum=0.9",
    ]
    assert load_config("recipe.py", whole).optim_wrapper.optimizer.momentum == 0.9


def test_overrides_as_a_dict(tree):
    assert load_config("recipe.py", {"train_cfg.max_epochs": 2}).train_cfg.max_epochs == 2


@pytest.mark.parametrize(
    "words",
    [
        ['optim_wrapper.optimizer={"_delete_": True, "type": "SGD", "lr": 0.05}'],
        ['optim_wrapper={"optimizer": {"_delete_": True, "type": "SGD", "lr": 0.05}}'],
        [f"optim_wrapper.optimizer.{word}" for word in ("_delete_=True", "type=SGD", "lr=0.05")],
        ["optim_wrapper.optimizer={'type': 'SGD', 'lr': 0.05}", "model.backbone._delete_=False"],
    ],
)
def test_delete_replaces_a_dict_and_leaves_no_trace(tree, words):
    cfg = load_config("recipe.py", words)
    assert cfg.optim_wrapper.optimizer == {"type": "SGD", "lr": 0.05}
    assert cfg.model.backbone.arch == "nano"
    assert "_delete_" not in cfg.pretty_text


def test_delete_of_something_else_than_a_dict(tree):
    with pytest.raises(UserError, match="is 10, which has no key '_delete_'"):
        load_config("recipe.py", ["train_cfg.max_epochs._delete_=True"])
    with pytest.raises(UserError, match="_delete_ expects bool, got 'yes'"):
        load_config("recipe.py", ["train_cfg._delete_=yes"])
