"""The top-level key ``classes``."""

from __future__ import annotations

import pytest

from polaformer.config.check import check_file
from polaformer.config.load import read_config, where
from polaformer.config.report import explain_key

# Types that nobody knows are enough here: loading alone does not build anything.
DETECTOR = """
model = dict(
    type='Detector',
    rpn_head=dict(type='Proposals', num_classes=1),
    roi_head=dict(
        type='Cascade',
        bbox_head=[dict(type='Box', num_classes=80), dict(type='Box', num_classes=80)],
        mask_head=dict(type='Mask', num_classes=80),
        semantic_head=dict(type='Stuff', num_classes=183),
    ),
)
"""


def loaded(path="child.py", overrides=()):
    return read_config(path, overrides)


def test_heads_at_any_depth_and_in_lists_but_no_proposals(tree):
    tree.write("detector.py", DETECTOR)
    tree.write("child.py", "_base_ = 'detector.py'\nclasses = ('cat', 'dog', 'bird')\n")
    cfg, problems = loaded()
    assert problems == []
    assert [head.num_classes for head in cfg.model.roi_head.bbox_head] == [3, 3]
    assert cfg.model.roi_head.mask_head.num_classes == 3
    assert cfg.model.rpn_head.num_classes == 1
    assert cfg.model.roi_head.semantic_head.num_classes == 183
    assert where(cfg, "model.roi_head.bbox_head.1.num_classes") == "child.py:2"
    assert where(cfg, "model.rpn_head.num_classes") == "detector.py:3"


def test_data_sets_that_take_names_get_them(tree):
    tree.child("classes = ['red', 'blue']\nmodel = dict(head=dict(_delete_=True, type='X'))")
    cfg, problems = loaded()
    assert problems == []
    assert cfg.classes == ("red", "blue")
    assert cfg.train_dataloader.dataset.classes == ("red", "blue")
    assert "num_classes" not in cfg.model.head  # nothing says that X takes it


def test_a_head_that_leaves_its_number_to_a_default(tree):
    tree.child(
        """
        classes = ['red', 'blue']
        model = dict(head=dict(_delete_=True, type='polaformer.LinearHead'))
        """
    )
    cfg, problems = loaded()
    assert problems == []
    assert cfg.model.head.num_classes == 2


def test_the_dumped_config_loads_again(tree):
    tree.child("classes = ['red', 'blue']")
    cfg, _ = loaded()
    cfg.dump("dumped.py")
    again, problems = loaded("dumped.py")
    assert problems == []
    assert again.model.head.num_classes == 2
    assert tuple(again.train_dataloader.dataset.classes) == ("red", "blue")


@pytest.mark.parametrize(
    "value, sentence",
    [
        ("'cat'", "expects a list of names, got 'cat'; for one class write classes = ('cat',)"),
        ("('cat')", "for one class write classes = ('cat',)"),
        ("3", "expects a list of names, got 3"),
        ("dict(cat=1)", "expects a list of names"),
        ("()", "no class is named; leave the key out to take all classes of the data"),
        ("('cat', 1)", "a name of a class is a string, got 1"),
        ("('cat', ' ')", "a name of a class is empty: ' '"),
        ("('cat', 'dog', 'cat')", "named more than once: cat"),
    ],
)
def test_wrong_forms(tree, value, sentence):
    tree.child(f"classes = {value}")
    cfg, problems = loaded()
    (problem,) = problems
    assert problem.startswith("classes (child.py:2): ")
    assert sentence in problem
    assert cfg.model.head.num_classes == 3


def test_none_switches_off_what_a_base_says(tree):
    tree.child("classes = ['a', 'b']", name="middle.py")
    tree.write("child.py", "_base_ = 'middle.py'\nclasses = None\n")
    cfg, problems = loaded()
    assert problems == []
    assert cfg.model.head.num_classes == 3


def test_another_number_in_the_same_file_is_a_conflict(tree):
    tree.child("classes = ['a', 'b']\nmodel = dict(head=dict(num_classes=5))")
    _, problems = loaded()
    assert problems == [
        "model.head.num_classes (child.py:3): 5, but 'classes' names 2 (a, b); "
        "write only one of the two"
    ]


def test_the_same_number_in_the_same_file_is_none(tree):
    tree.child("classes = ['a', 'b']\nmodel = dict(head=dict(num_classes=len(classes)))")
    assert loaded()[1] == []


def test_a_file_built_on_the_names_conflicts_too(tree):
    tree.child("classes = ['a', 'b']", name="middle.py")
    tree.write("child.py", "_base_ = 'middle.py'\nmodel = dict(head=dict(num_classes=5))\n")
    (problem,) = loaded()[1]
    assert problem.startswith("model.head.num_classes (child.py:2): 5, but 'classes' names 2")


def test_bases_side_by_side_do_not_conflict(tree):
    """The names of a data base go into the head of a model base, whichever stands first."""
    tree.write("_base_/names.py", "classes = ['a', 'b']\n")
    for order in (["model", "names"], ["names", "model"]):
        bases = [f"_base_/{name}.py" for name in ("data", *order)]
        tree.write("child.py", f"_base_ = {bases}\n")
        cfg, problems = loaded()
        assert problems == []
        assert cfg.model.head.num_classes == 2
        assert where(cfg, "model.head.num_classes") == "_base_/names.py:1"


def test_other_names_of_a_data_set_conflict(tree):
    tree.child("classes = ['a', 'b']\ntrain_dataloader = dict(dataset=dict(classes=['b', 'a']))")
    (problem,) = loaded()[1]
    assert "train_dataloader.dataset.classes (child.py:3): other names, but 'classes'" in problem


def test_metainfo_is_another_word_for_the_names(tree):
    base = "train_dataloader = dict(dataset=dict(type='X', metainfo=dict(classes=('c',))))\n"
    tree.write("base.py", base)
    tree.write("child.py", "_base_ = 'base.py'\nclasses = ['a', 'b']\n")
    cfg, problems = loaded()
    assert problems == []
    assert cfg.train_dataloader.dataset.metainfo.classes == ("a", "b")
    tree.write("child.py", f"classes = ['a', 'b']\n{base}")
    (problem,) = loaded()[1]
    assert problem.startswith("train_dataloader.dataset.metainfo.classes (child.py:2): other names")


@pytest.mark.parametrize("text", ["classes=('a','b')", "classes=[a,b]", "classes=a,b"])
def test_names_on_the_command_line(tree, text):
    tree.child("classes = ['x', 'y', 'z']\nmodel = dict(head=dict(num_classes=3))")
    cfg, problems = loaded(overrides=[text])
    assert problems == []
    assert cfg.model.head.num_classes == 2
    assert cfg.train_dataloader.dataset.classes == ("a", "b")
    assert where(cfg, "model.head.num_classes") == "--cfg-options"


def test_a_conflict_on_the_command_line(tree):
    tree.child("classes = ['x', 'y']")
    (problem,) = loaded(overrides=["model.head.num_classes=5"])[1]
    assert problem.startswith("model.head.num_classes (--cfg-options): 5, but 'classes' names 2")
    (problem,) = loaded(overrides=["classes=cat"])[1]
    assert "--cfg-options classes" in problem


def test_explain_tells_who_set_it(tree, capsys):
    tree.child("classes = ['x', 'y']")
    assert explain_key("child.py", "model.head.num_classes") == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "model.head.num_classes = 2"
    assert lines[1] == "  child.py:2: classes = ('x', 'y')"
    assert lines[2].startswith("  _base_/model.py:5: model.head.num_classes = num_classes")


def test_check_tells_conflicts_once(tree):
    tree.child("classes = ['a', 'b']\nmodel = dict(head=dict(num_classes=5))")
    found = check_file("child.py", require_data=False, sizes=False).problems
    assert [p for p in found if "num_classes" in p] == found


def test_one_value_for_two_loaders(tree):
    """``a = b = dict(…)``: both have the lines of the one value, and both are merged."""
    tree.child(
        """
        val_dataloader = test_dataloader = dict(
            sampler=dict(type='DefaultSampler', shuffle=False),
            dataset=dict(
                type='polaformer.ImageFolder',
                roott='data/toy',
            ),
        )
        """
    )
    cfg, problems = loaded()
    assert problems == []
    for loader in ("val_dataloader", "test_dataloader"):
        assert where(cfg, f"{loader}.dataset.roott") == "child.py:6"
    found = check_file("child.py", require_data=False, sizes=False).problems
    told = [line for line in found if "did you mean 'root'?" in line]
    assert [line.split(" ")[0] for line in told] == ["val_dataloader.dataset.roott"]
    # Two values of the command line are two mistakes.
    options = [f"{loader}.batch_sise=2" for loader in ("val_dataloader", "test_dataloader")]
    found = check_file("child.py", options, require_data=False, sizes=False).problems
    assert len([line for line in found if "did you mean 'batch_size'?" in line]) == 2


def test_no_base_is_blamed_for_the_users_own_word(tree):
    middle = """
        val_dataloader = dict(
            sampler=dict(type='DefaultSampler', shuffle=False),
            dataset=dict(type='polaformer.ImageFolder', root='data/toy'),
        )
        test_dataloader = val_dataloader
        """
    tree.child(middle, name="middle.py")
    text = "test_dataloader = dict(dataset=dict(roott='x'))"
    tree.write("child.py", f"_base_ = 'middle.py'\n{text}\n")
    found = check_file("child.py", require_data=False, sizes=False).problems
    (problem,) = [line for line in found if "roott" in line]
    assert problem.startswith("test_dataloader.dataset.roott (child.py:2): ")
    assert problem.endswith("did you mean 'root'?")
