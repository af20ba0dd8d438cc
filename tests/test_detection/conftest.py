from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path

import mmengine.device.utils as device_utils
import pytest
import torch
from detection_toy import make_data, recipe
from mmengine.logging import MMLogger
from mmengine.registry import DefaultScope, init_default_scope

from polaformer.engine.launch import TrainOptions, train

pytest.importorskip("mmdet")
pytest.importorskip("pycocotools")


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
def det(tmp_path_factory) -> Path:
    """Six PNG files 128 x 96 with one to three filled rectangles; not to be changed."""
    return make_data(tmp_path_factory.mktemp("det") / "data")


VAL_SIZES = ((128, 96), (96, 128), (120, 60), (64, 64), (150, 100), (77, 101), (200, 90))


@pytest.fixture(scope="session")
def val(tmp_path_factory) -> Path:
    """Seven pictures of seven sizes, the fifth without objects; not to be changed."""
    return make_data(tmp_path_factory.mktemp("val") / "data", VAL_SIZES, empty=(4,), seed=1)


@pytest.fixture(scope="session")
def trained(tmp_path_factory, det, val) -> Callable[[str], tuple[Path, Path]]:
    """Recipe and work folder of a detector that has learnt a little, trained when first asked."""
    folder = tmp_path_factory.mktemp("trained")
    made: dict[str, tuple[Path, Path]] = {}

    def get(detector: str) -> tuple[Path, Path]:
        if detector not in made:
            path = recipe(folder / f"{detector}.py", detector, det, val, extra=LEARN[detector])
            train(TrainOptions(config=path, work_dir=folder / detector, device="cpu"))
            made[detector] = path, folder / detector
        return made[detector]

    return get


LEARN = {
    "retinanet": """
auto_scale_lr = dict(enable=False)
optim_wrapper = dict(optimizer=dict(lr=2e-3))
train_cfg = dict(max_epochs=12, val_interval=12)
default_hooks = dict(checkpoint=dict(max_keep_ckpts=1))
""",
    "mask_rcnn": """
auto_scale_lr = dict(enable=False)
optim_wrapper = dict(optimizer=dict(lr=1e-3))
train_cfg = dict(max_epochs=3, val_interval=3)
default_hooks = dict(checkpoint=dict(max_keep_ckpts=1))
""",
}
LEARN["cascade_mask_rcnn"] = LEARN["mask_rcnn"]
