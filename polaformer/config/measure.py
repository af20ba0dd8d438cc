"""Size, cost and memory of a model, measured on tensors without storage.

The model is built on the ``meta`` device: no memory is used, no weight is initialised, and
nothing is computed but shapes.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor, nn

FP32 = 4


@dataclass(frozen=True)
class Cost:
    """Parameters, multiply-adds per image, and bytes kept for the backward pass of one image."""

    params: int
    trainable: int
    macs: int
    input_size: tuple[int, int]
    activation_bytes: int


@dataclass(frozen=True)
class Memory:
    """Estimated bytes of a training step on one process."""

    weights: int
    gradients: int
    optimizer: int
    ema: int
    activations: int

    @property
    def total(self) -> int:
        return self.weights + self.gradients + self.optimizer + self.ema + self.activations


def build_on_meta(model_cfg: Mapping[str, Any], scope: str | None) -> nn.Module:
    """The model of a config without memory for its weights; raises what its constructor raises."""
    import torch
    from mmengine.registry import MODELS, DefaultScope

    # Detectors write into the configs of their heads.
    own = copy.deepcopy(dict(model_cfg))
    with torch.device("meta"), DefaultScope.overwrite_default_scope(scope):
        return MODELS.build(own)


def measure(model: nn.Module, input_size: tuple[int, int], amp: Any = None) -> Cost:
    """Cost of ``model`` (built on meta) on images [1, C, H, W]; fills it with fake tensors.

    Multiply-adds are half of what torch's FLOP counter finds: matrix products and convolutions,
    attention products included; element-wise work is not counted. ``amp`` is a half type under
    which the kept activations are measured; without one they are fp32.
    """
    import torch

    from polaformer.ops.flops import count_macs

    channels = getattr(getattr(model, "backbone", None), "in_channels", 3)
    parameters = list(model.parameters())
    macs = count_macs(model, torch.empty(1, channels, *input_size, device="meta"))
    return Cost(
        params=sum(p.numel() for p in parameters),
        trainable=sum(p.numel() for p in parameters if p.requires_grad),
        macs=macs,
        input_size=input_size,
        activation_bytes=_activations(model, (channels, *input_size), amp),
    )


def _activations(model: nn.Module, shape: tuple[int, ...], amp: Any) -> int:
    """Bytes that autograd keeps per image, measured on two (one alone avoids some copies)."""
    import torch
    from torch._subclasses.fake_tensor import FakeTensorMode

    with ExitStack() as stack:
        device = "meta"
        if amp is not None:
            # Autocast knows no meta device; a fake tensor has a device and no storage either.
            device = "cpu"
            stack.enter_context(FakeTensorMode())
            _make_fake(model)
            stack.enter_context(torch.autocast("cpu", dtype=amp))
        two = _saved_bytes(model, torch.empty(2, *shape, device=device))
        if amp is None:
            return two // 2
        # Autocast keeps half copies of the weights too, once: they are not the third image's.
        return _saved_bytes(model, torch.empty(3, *shape, device=device)) - two


def _make_fake(model: nn.Module) -> None:
    """Replace parameters and buffers by empty ones of the active fake mode."""
    import torch

    for module in model.modules():
        for name, weight in module._parameters.items():
            if weight is not None:
                fake = torch.empty(weight.shape, dtype=weight.dtype)
                module._parameters[name] = torch.nn.Parameter(fake, weight.requires_grad)
        for name, tensor in module._buffers.items():
            if tensor is not None:
                module._buffers[name] = torch.empty(tensor.shape, dtype=tensor.dtype)


def _saved_bytes(model: nn.Module, images: Tensor) -> int:
    """Bytes of all storages that the forward pass keeps, each once, weights left out."""
    import torch

    own = {p.untyped_storage()._cdata for p in model.parameters()}
    kept: dict[int, Any] = {}

    def pack(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage._cdata not in own:
            kept[storage._cdata] = storage
        return tensor

    model.train()
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        output = model(images)
    model.eval()
    del output
    return sum(storage.nbytes() for storage in kept.values())


def training_memory(
    cost: Cost, batch_size: int, states_per_weight: int, ema: bool = False
) -> Memory:
    """Memory of a step: fp32 weights, gradients and optimizer states, and the kept activations."""
    weights = FP32 * cost.params
    trainable = FP32 * cost.trainable
    return Memory(
        weights=weights,
        gradients=trainable,
        optimizer=states_per_weight * trainable,
        ema=weights if ema else 0,
        activations=batch_size * cost.activation_bytes,
    )


def states_per_weight(optimizer_cfg: Mapping[str, Any]) -> int:
    """Tensors of a weight's size that the optimiser keeps, measured by one step on one number.

    Zero where it cannot be told.
    """
    import torch
    from mmengine.registry import OPTIMIZERS

    weight = torch.nn.Parameter(torch.zeros(2, 3))
    weight.grad = torch.ones(2, 3)
    try:
        optimizer = OPTIMIZERS.build({**optimizer_cfg, "params": [weight]})
        optimizer.step()
    except Exception:  # foreign optimisers may need more than a parameter
        return 0
    states: Sequence[Any] = list(optimizer.state.get(weight, {}).values())
    return sum(getattr(state, "shape", None) == weight.shape for state in states)


def half_type(wrapper: Mapping[str, Any]) -> Any:
    """The half type of an AmpOptimWrapper, or None."""
    if not str(wrapper.get("type", "")).endswith("AmpOptimWrapper"):
        return None
    import torch

    dtype = wrapper.get("dtype") or "float16"
    return getattr(torch, dtype) if isinstance(dtype, str) else dtype
