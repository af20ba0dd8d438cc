from __future__ import annotations

import pytest
from rich.console import Console

from polaformer.config.measure import Cost
from polaformer.config.plan import DataFound, Plan, Steps, summary_table

COST = Cost(89_138_000, 89_138_000, 15_708_000_000, (224, 224), 1)


def plans() -> list[Plan]:
    names = ("pola-swin-b_300e_imagenet-224", "softmax-swin-nano_digits")
    return [
        Plan(
            f"configs/classification/{name}.py",
            cost=COST,
            data={"train": DataFound(9, ("a",), "x")},
            steps=Steps(300, 20_018, 64, 1),
            lr=6.25e-5,
        )
        for name in names
    ]


def shown(found: list[Plan], width: int) -> list[str]:
    console = Console(width=width, force_terminal=False, color_system=None)
    with console.capture() as capture:
        console.print(summary_table(found, width))
    return [line.rstrip() for line in capture.get().splitlines()]


@pytest.mark.parametrize(
    "width, header",
    [
        (125, "params M   GMACs    input  GiB/step  batch      steps        lr  data   verdict"),
        (80, "params M   GMACs    input  batch  data   verdict"),
        (50, "params M  verdict"),
        (42, "verdict"),
    ],
)
def test_a_narrow_table_loses_columns_not_names(width, header):
    lines = shown(plans(), width)
    assert max(map(len, lines)) <= width
    assert lines[0] == "configs in configs/classification"
    assert " ".join(lines[1].split()) == f"config {' '.join(header.split())}"
    assert [line.split()[0] for line in lines[2:]] == [
        "pola-swin-b_300e_imagenet-224",
        "softmax-swin-nano_digits",
    ]
    assert lines[2].endswith("sound")


def test_a_config_of_another_folder_keeps_its_path():
    lines = shown([*plans(), Plan("other/bad.py", problems=["a", "b"])], 125)
    assert lines[0] == "configs in configs/classification"
    assert lines[4].startswith("other/bad.py")
    assert lines[4].endswith("2 problems")
