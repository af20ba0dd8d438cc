from __future__ import annotations

import logging
from pathlib import Path

import mmengine.device.utils as device_utils
import pytest
import torch
from mmengine.logging import MMLogger
from mmengine.registry import DefaultScope, init_default_scope
from segmentation_toy import make_scenes, recipe

from polaformer.engine.launch import TrainOptions, train

pytest.importorskip("mmseg")


@pytest.fixture(autouse=True)
def _cpu_and_scope(monkeypatch):
    """Bitwise comparisons and forked children need the CPU and one thread."""
    monkeypatch.setattr(device_utils, "DEVICE", "cpu")
    threads, scope = torch.get_num_threads(), DefaultScope.get_current_instance()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)
    _forget_streams()
    init_default_scope(scope.scope_name if scope else "mmengine")


def _forget_streams() -> None:
    """Loggers of past runs must not write to streams that pytest has closed."""
    for logger in MMLogger._instance_dict.values():
        for handler in logger.handlers[:]:
            if type(handler) is logging.StreamHandler:
                logger.removeHandler(handler)


@pytest.fixture(scope="session")
def scenes(tmp_path_factory) -> Path:
    """Six scenes of 64 x 64; not to be changed."""
    return make_scenes(tmp_path_factory.mktemp("scenes") / "data")


VAL_SIZES = ((64, 64), (48, 64), (80, 40), (64, 96), (33, 47), (64, 64), (101, 77))


@pytest.fixture(scope="session")
def val(tmp_path_factory) -> Path:
    """Seven scenes of several sizes; not to be changed."""
    return make_scenes(tmp_path_factory.mktemp("val") / "data", VAL_SIZES, seed=1)


LEARN = """
train_cfg = dict(max_iters=20, val_interval=20)
train_dataloader = dict(batch_size=4)
"""


@pytest.fixture(scope="session")
def trained(tmp_path_factory, scenes, val) -> tuple[Path, Path]:
    """Recipe and work folder of a Semantic FPN that has learnt a little."""
    folder = tmp_path_factory.mktemp("trained")
    path = recipe(folder / "recipe.py", "semantic_fpn", scenes, val, extra=LEARN)
    train(TrainOptions(config=path, work_dir=folder / "run", device="cpu"))
    return path, folder / "run"
