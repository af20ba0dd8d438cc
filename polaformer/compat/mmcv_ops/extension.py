"""The functions of ``mmcv._ext`` by name."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any, NoReturn

from polaformer.compat.mmcv_ops import nms, roi

KERNELS: dict[str, Callable[..., Any]] = {
    "nms": nms.nms,
    "roi_align_forward": roi.roi_align_forward,
    "roi_align_backward": roi.roi_align_backward,
}


def fill(module: ModuleType) -> None:
    """Give ``module`` every function there is, and one that explains itself for any other name."""

    def missing(name: str) -> Callable[..., NoReturn]:
        if name.startswith("_"):
            raise AttributeError(f"module {module.__name__!r} has no attribute {name!r}")
        return _unavailable(name)

    vars(module).update(KERNELS)
    vars(module)["__getattr__"] = missing


def _unavailable(name: str) -> Callable[..., NoReturn]:
    def call(*args: Any, **kwargs: Any) -> NoReturn:
        raise NotImplementedError(
            f"mmcv's operation '{name}' needs mmcv's compiled extension, and mmcv-lite comes "
            "without it; an mmcv with compiled ops in its place is used as it is. "
            f"Available here: {', '.join(sorted(KERNELS))}"
        )

    call.__name__ = call.__qualname__ = name
    return call
