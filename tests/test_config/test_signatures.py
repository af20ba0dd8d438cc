"""Keywords of our own classes, and the nearest of the registered names."""

from __future__ import annotations

import pytest

import polaformer.registry as ours
from polaformer.config.check import check_file
from polaformer.config.names import nearest_type
from polaformer.config.signatures import KINDS, keywords_of


def test_no_class_of_ours_takes_any_keyword():
    """Where one did, a misspelt keyword of it would pass every check."""
    registries = [getattr(ours, kind) for kind in (*KINDS, "ATTENTIONS") if hasattr(ours, kind)]
    classes = [target for one in registries if one.names() for target in one.module_dict.values()]
    assert len(classes) > 30
    assert [target for target in classes if keywords_of(target).is_open] == []


@pytest.mark.parametrize(
    "hook, sentence",
    [
        ("dict(checkpoint=dict(intervall=1))", "did you mean 'interval'?"),
        ("dict(checkpoint=dict(file_name_tmpl='a'))", "did you mean 'filename_tmpl'?"),
    ],
)
def test_a_misspelt_keyword_of_a_default_hook(tree, hook, sentence):
    tree.child(f"runner_type = 'polaformer.Runner'\ndefault_hooks = {hook}")
    found = check_file("child.py", require_data=False, sizes=False).problems
    tree.child("runner_type = 'polaformer.Runner'\ndefault_hooks = dict(logger=dict(interval=2))")
    sound = check_file("child.py", require_data=False, sizes=False).problems
    assert sound == []
    (problem,) = found
    assert problem.startswith("default_hooks.checkpoint.")
    assert sentence in problem


@pytest.mark.parametrize(
    "name, kind, match",
    [
        ("PolaPVT", "MODELS", "polaformer.PolaPVT"),
        ("mmdet.PolaPVT", "MODELS", "polaformer.PolaPVT"),
        ("polaformer.MaskRCNN", "MODELS", "MaskRCNN"),
        ("LoadImage", "TRANSFORMS", "polaformer.LoadImage"),
        ("MaskRCN", "MODELS", "MaskRCNN"),
        ("polaformer.PolaPVTT", "MODELS", "polaformer.PolaPVT"),
    ],
)
def test_a_wrong_prefix_is_no_misspelt_name(name, kind, match):
    assert nearest_type(name, kind, "mmdet") == match
