"""A small config tree in a temporary folder and a helper that writes files into it."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent

import pytest

RUNTIME = """
default_scope = 'polaformer'
default_hooks = dict(
    logger=dict(type='LoggerHook', interval=10),
    checkpoint=dict(type='CheckpointHook', interval=1),
)
randomness = dict(seed=0)
"""

DATA = """
data_root = 'data/toy'
batch = 4
train_dataloader = dict(
    batch_size=batch,
    num_workers=0,
    sampler=dict(type='DefaultSampler', shuffle=True),
    dataset=dict(type='polaformer.ImageFolder', root=data_root, split='train'),
)
"""

SCHEDULE = """
optim_wrapper = dict(
    optimizer=dict(type='AdamW', lr=1e-3, weight_decay=0.05, betas=(0.9, 0.999)),
    clip_grad=None,
)
param_scheduler = [
    dict(type='LinearLR', start_factor=0.1, by_epoch=True, end=2),
    dict(type='CosineAnnealingLR', by_epoch=True, begin=2),
]
train_cfg = dict(by_epoch=True, max_epochs=10, val_interval=1)
"""

MODEL = """
num_classes = 3
model = dict(
    type='polaformer.ImageClassifier',
    backbone=dict(type='polaformer.PolaPVT', arch='nano', img_size=32, drop_path_rate=0.1),
    head=dict(type='polaformer.LinearHead', num_classes=num_classes),
)
"""

RECIPE = """
_base_ = ['_base_/runtime.py', '_base_/data.py', '_base_/schedule.py', '_base_/model.py']
"""


class Tree:
    """Config files under one folder."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def write(self, name: str, text: str) -> Path:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(dedent(text).lstrip("\n"))
        return path

    def child(self, text: str, name: str = "child.py") -> Path:
        return self.write(name, f"_base_ = './recipe.py'\n{dedent(text).lstrip()}")


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Tree:
    monkeypatch.chdir(tmp_path)
    found = Tree(tmp_path)
    found.write("_base_/runtime.py", RUNTIME)
    found.write("_base_/data.py", DATA)
    found.write("_base_/schedule.py", SCHEDULE)
    found.write("_base_/model.py", MODEL)
    found.write("recipe.py", RECIPE)
    return found
