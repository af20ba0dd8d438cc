"""Known class sets against their published definitions and against mmseg's tables."""

from __future__ import annotations

import ast
from importlib.util import find_spec
from pathlib import Path

import pytest

from polaformer.datasets.class_sets import class_set, class_set_names, voc_color
from polaformer.errors import UserError

SIZES = {"ade20k": 150, "cityscapes": 19, "voc2012": 21, "coco_stuff": 171}
MODULES = {
    "ade20k": "ade",
    "cityscapes": "cityscapes",
    "voc2012": "voc",
    "coco_stuff": "coco_stuff",
}


def mmseg_table(module: str) -> dict[str, list]:
    """METAINFO of a data set of mmseg, read from its file: importing mmseg takes seconds."""
    spec = find_spec("mmseg")
    if spec is None or spec.origin is None:
        pytest.skip("mmsegmentation is not installed")
    tree = ast.parse((Path(spec.origin).parent / "datasets" / f"{module}.py").read_text())
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "METAINFO":
            call = node.value
            assert isinstance(call, ast.Call)
            return {str(word.arg): ast.literal_eval(word.value) for word in call.keywords}
    raise LookupError(module)


@pytest.mark.parametrize("name", SIZES)
def test_classes_are_distinct_and_of_the_published_number(name: str):
    found = class_set(name)
    assert found.name == name
    sizes = {len(found.classes), len(set(found.classes)), len(found.palette), len(found.values)}
    assert sizes == {len(set(found.values))} == {SIZES[name]}
    assert not set(found.values) & {*found.ignored, 255}
    assert all(label == label.strip() for label in found.classes)


@pytest.mark.parametrize("name", SIZES)
def test_names_and_colours_are_those_of_mmseg(name: str):
    table, found = mmseg_table(MODULES.get(name, name)), class_set(name)
    assert found.classes == tuple(label.strip() for label in table["classes"])
    if name != "coco_stuff":  # mmseg gives several of its classes one colour
        assert found.palette == tuple(map(tuple, table["palette"]))


def test_numbers_in_the_files():
    ade = class_set("ade20k")
    assert ade.values == tuple(range(1, 151))
    assert ade.ignored == (0,)
    assert ade.reduce_zero_label
    assert class_set("voc2012").values == tuple(range(21))
    # labels.py of cityscapesScripts: road 7, sidewalk 8, ..., train 31, motorcycle 32, bicycle 33
    city = class_set("cityscapes")
    numbers = dict(zip(city.classes, city.values, strict=True))
    assert {"road": 7, "pole": 17, "person": 24, "bicycle": 33}.items() <= numbers.items()
    assert {*city.values, *city.ignored} == set(range(-1, 34))
    # labels.txt of COCO-Stuff: 1 person, 90 toothbrush, 92 banner, 182 wood; the files have id - 1
    stuff = class_set("coco_stuff")
    numbers = dict(zip(stuff.classes, stuff.values, strict=True))
    assert {"person": 0, "toothbrush": 89, "banner": 91, "wood": 181}.items() <= numbers.items()
    without = {12, 26, 29, 30, 45, 66, 68, 69, 71, 83, 91}  # ids that COCO never used
    assert set(range(1, 183)) - {value + 1 for value in stuff.values} == without
    assert not any(class_set(name).reduce_zero_label for name in SIZES if name != "ade20k")


def test_colours_of_pascal_voc():
    assert [voc_color(index) for index in (0, 1, 2, 3, 20, 255)] == [
        (0, 0, 0),
        (128, 0, 0),
        (0, 128, 0),
        (128, 128, 0),
        (0, 64, 128),
        (224, 224, 192),
    ]
    assert len({voc_color(index) for index in range(256)}) == 256


def test_an_unknown_set_names_the_known_ones():
    assert class_set_names() == tuple(SIZES)
    with pytest.raises(UserError, match=r"'ade20' is no known class set; did you mean 'ade20k'"):
        class_set("ade20")
    with pytest.raises(UserError, match=r"for one class \('lungs',\)"):
        class_set("lungs")
