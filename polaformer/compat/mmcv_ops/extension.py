"""The functions of ``mmcv._ext`` by name."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any, NoReturn

import torch

from polaformer.compat.mmcv_ops import deform, focal, nms, roi_align, roi_pool
from polaformer.errors import UserError

KERNELS: dict[str, Callable[..., Any]] = {
    "nms": nms.nms,
    "nms_match": nms.nms_match,
    "softnms": nms.softnms,
    "roi_align_forward": roi_align.forward,
    "roi_align_backward": roi_align.backward,
    "roi_pool_forward": roi_pool.forward,
    "roi_pool_backward": roi_pool.backward,
    "deform_conv_forward": deform.forward,
    "deform_conv_backward_input": deform.backward_input,
    "deform_conv_backward_parameters": deform.backward_parameters,
    "modulated_deform_conv_forward": deform.modulated_forward,
    "modulated_deform_conv_backward": deform.modulated_backward,
    "sigmoid_focal_loss_forward": focal.sigmoid_forward,
    "sigmoid_focal_loss_backward": focal.sigmoid_backward,
    "softmax_focal_loss_forward": focal.softmax_forward,
    "softmax_focal_loss_backward": focal.softmax_backward,
}


def fill(module: ModuleType) -> None:
    """Give ``module`` every function there is, and one that explains itself for any other name."""

    def missing(name: str) -> Callable[..., NoReturn]:
        if name.startswith("_"):
            raise AttributeError(f"module {module.__name__!r} has no attribute {name!r}")
        return _unavailable(name)

    vars(module).update(
        KERNELS,
        get_compiler_version=lambda: "none (polaformer.compat.mmcv_ops over torchvision)",
        get_compiling_cuda_version=lambda: torch.version.cuda or "not available",
        __getattr__=missing,
    )


def _unavailable(name: str) -> Callable[..., NoReturn]:
    def call(*args: Any, **kwargs: Any) -> NoReturn:
        raise UserError(
            f"mmcv's operation '{name}' is not here: mmcv-lite comes without compiled operations, "
            f"and polaformer supplies {', '.join(KERNELS)}. Choose a model that does without it, "
            "or install mmcv 2.1 with its compiled operations in place of mmcv-lite"
        )

    call.__name__ = call.__qualname__ = name
    return call
