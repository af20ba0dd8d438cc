"""Repairs of mmengine 0.10.7's training code on today's torch: CPU autocast, CPU processes."""

from __future__ import annotations

import os
import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import mmengine.device.utils as device_utils
import mmengine.dist.utils as dist_utils
import mmengine.runner
import mmengine.runner.amp as amp
import mmengine.runner.loops as loops
import torch
from mmengine.optim import AmpOptimWrapper, OptimWrapper

from polaformer.compat.mmengine import ORIGINALS, replace

DEPRECATIONS: tuple[tuple[str, type[Warning], str], ...] = (
    ("mmseg/models/builder.py", UserWarning, "``build_loss`` would be deprecated soon"),
    (
        "mmseg/structures/sampler/builder.py",
        UserWarning,
        "``build_pixel_sampler`` would be deprecated soon",
    ),
    ("torch/nn/parallel/distributed.py", FutureWarning, "`broadcast_buffers` is deprecated"),
)
"""File, category and start of warnings that every good run would show."""


def silence_deprecations() -> None:
    """Hide what libraries say about calls that no user of ours can change.

    mmseg 1.2.2 builds losses and samplers of its heads by functions that it calls deprecated.
    Recent torch advises ``forward_sync_buffers``, which older ones lack and which does not leave
    out the same. Each entry can go when the file does not have its sentence any more.
    """
    for _, category, start in DEPRECATIONS:
        warnings.filterwarnings("ignore", re.escape(start), category)


def use_device(name: str) -> None:
    """Make mmengine run on ``name`` ('cpu' or 'cuda'); it fixes its choice when it is imported."""
    device_utils.DEVICE = name


def repair_autocast() -> None:
    """Allow fp16 as well as bf16 in autocast on a CPU.

    mmengine asserts that CPU autocast is bf16; torch has supported fp16 there since 2.1. Can go
    when ``mmengine.runner.amp.autocast(dtype=torch.float16)`` enters on a CPU.
    """
    if "mmengine.runner.amp.autocast" in ORIGINALS:
        return
    original = amp.autocast

    @contextmanager
    def autocast(
        device_type: str | None = None,
        dtype: torch.dtype | None = None,
        enabled: bool = True,
        cache_enabled: bool | None = None,
    ) -> Iterator[None]:
        """mmengine's autocast, with any half type on a CPU (bf16 where none is named)."""
        if (device_type or device_utils.get_device()) != "cpu":
            with original(device_type, dtype, enabled, cache_enabled):
                yield
            return
        with torch.autocast(
            "cpu",
            dtype=dtype or torch.bfloat16,
            enabled=enabled,
            cache_enabled=cache_enabled,
        ):
            yield

    for module in (amp, loops, mmengine.runner):
        replace(module, "autocast", autocast)


def repair_amp_optim_wrapper() -> None:
    """Let ``AmpOptimWrapper`` train on a CPU, with a gradient scaler where fp16 needs one.

    mmengine asserts that there is an accelerator, and builds a scaler for CUDA that switches
    itself off elsewhere. bf16 has the exponent range of fp32 and gets no scaler. Can go when
    ``AmpOptimWrapper(optimizer=...)`` can be built on a CPU.
    """
    if "AmpOptimWrapper.__init__" in ORIGINALS:
        return
    original = AmpOptimWrapper.__init__

    def init(
        self: AmpOptimWrapper,
        loss_scale: Any = "dynamic",
        dtype: str | torch.dtype | None = None,
        use_fsdp: bool = False,
        **kwargs: Any,
    ) -> None:
        """mmengine's constructor, with the gradient scaler of the device in use."""
        device = device_utils.get_device()
        if use_fsdp or device not in ("cpu", "cuda"):
            original(self, loss_scale=loss_scale, dtype=dtype, use_fsdp=use_fsdp, **kwargs)
            return
        OptimWrapper.__init__(self, **kwargs)
        self.cast_dtype = _dtype(dtype)
        static = float(loss_scale) if isinstance(loss_scale, (int, float)) else None
        options: dict[str, Any] = {}
        if static is not None:
            options = {"init_scale": static}
        elif isinstance(loss_scale, dict):
            options = dict(loss_scale)
        elif loss_scale != "dynamic":
            raise TypeError(f"loss_scale is 'dynamic', a number or a dict, not {loss_scale!r}")
        default = torch.float16 if device == "cuda" else torch.bfloat16
        options.setdefault("enabled", (self.cast_dtype or default) == torch.float16)
        self._scale_update_param = static
        self.loss_scaler = torch.amp.GradScaler(device, **options)

    replace(AmpOptimWrapper, "__init__", init)


def _dtype(name: str | torch.dtype | None) -> torch.dtype | None:
    if name is None or isinstance(name, torch.dtype):
        return name
    if name not in AmpOptimWrapper.valid_dtypes:
        raise TypeError(f"dtype is one of {AmpOptimWrapper.valid_dtypes}, not {name!r}")
    return getattr(torch, name)


def repair_init_dist() -> None:
    """Start a process group on a CPU without asking for a CUDA device.

    mmengine calls ``torch.cuda.set_device`` before it initialises the group. Can go when
    ``init_dist('pytorch', backend='gloo')`` works where torch sees no CUDA device.
    """
    if "mmengine.dist.utils._init_dist_pytorch" in ORIGINALS:
        return
    original = dist_utils._init_dist_pytorch

    def init_dist_pytorch(backend: str, init_backend: str = "torch", **kwargs: Any) -> None:
        """mmengine's function, or plain ``init_process_group`` where the device is a CPU."""
        if device_utils.get_device() != "cpu":
            original(backend, init_backend=init_backend, **kwargs)
            return
        torch.distributed.init_process_group(
            backend="gloo",
            rank=int(os.environ["RANK"]),
            world_size=int(os.environ["WORLD_SIZE"]),
            **kwargs,
        )

    replace(dist_utils, "_init_dist_pytorch", init_dist_pytorch)
