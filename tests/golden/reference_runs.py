"""Reads the recorded runs of the published models and compares ours with them."""

from __future__ import annotations

import json
from pathlib import Path

import torch
from safetensors import safe_open
from torch import Tensor, nn


class Run:
    """One recorded run: configuration, state, inputs, outputs and gradients."""

    def __init__(self, path: Path) -> None:
        with safe_open(path, framework="pt") as file:
            self.config = json.loads(file.metadata()["config"])
            self.tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118

    def group(self, prefix: str) -> dict[str, Tensor]:
        return {
            key.removeprefix(prefix): value
            for key, value in self.tensors.items()
            if key.startswith(prefix)
        }

    @property
    def state(self) -> dict[str, Tensor]:
        return self.group("state.")


def relative_error(ours: Tensor, theirs: Tensor) -> float:
    """Norm of the difference over the norm of the reference."""
    ours, theirs = ours.double(), theirs.double()
    return float((ours - theirs).norm() / theirs.norm().clamp(min=1e-30))


def run_backward(module: nn.Module, call, run: Run, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Output and input gradient of ``call(x)`` under the recorded cotangent; fills ``.grad``."""
    module.to(dtype).eval().zero_grad()
    x = run.tensors["input.x"].to(dtype).requires_grad_()
    output = call(x)
    output.backward(run.tensors["grad_output.0"].to(dtype))
    return output.detach(), x.grad
