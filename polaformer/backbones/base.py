"""What every backbone promises: its channels, its strides, its depth, and any image size."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from mmengine.model import BaseModule
from torch import Tensor, nn

from polaformer.errors import UserError, did_you_mean

Size = tuple[int, int]


def as_size(value: Any, field: str) -> Size:
    """An int or a pair (H, W) as a pair of positive ints."""
    pair = (value, value) if type(value) is int else value
    if isinstance(pair, Sequence) and len(pair) == 2:
        height, width = pair
        if all(type(side) is int and side > 0 for side in (height, width)):
            return height, width
    raise UserError(f"{field}={value!r}; allowed: a positive int or a pair (H, W) of them")


def check_rate(value: Any, field: str) -> float:
    """A probability of dropping something, at least 0 and below 1."""
    if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < 1:
        return float(value)
    raise UserError(f"{field}={value!r}; allowed: 0 <= value < 1")


def resolve_arch(arch: Any, table: Mapping[str, dict[str, Any]], name: str) -> dict[str, Any]:
    """The hyper-parameters behind ``arch``: a name of ``table``, or a dict over the nano ones.

    Raises:
        UserError: Naming the unknown arch or hyper-parameter and what is allowed.
    """
    if isinstance(arch, str):
        if arch not in table:
            hint = did_you_mean(arch, table)
            raise UserError(
                f"{name}: there is no arch '{arch}'; {hint + ' ' if hint else ''}"
                f"allowed: {', '.join(table)}, or a dict of {', '.join(table['nano'])}"
            )
        return dict(table[arch])
    if not isinstance(arch, Mapping):
        raise UserError(f"{name}: arch={arch!r}; allowed: {', '.join(table)}, or a dict")
    for key in arch:
        if key not in table["nano"]:
            hint = did_you_mean(key, table["nano"])
            raise UserError(
                f"{name}: arch has no field '{key}'; {hint + ' ' if hint else ''}"
                f"allowed: {', '.join(table['nano'])}"
            )
    fields = {**table["nano"], **arch}
    lengths = {key: len(value) for key, value in fields.items() if isinstance(value, Sequence)}
    if len(set(lengths.values())) > 1:
        listed = ", ".join(f"{key} ({length})" for key, length in lengths.items())
        raise UserError(f"{name}: arch fields differ in their number of stages: {listed}")
    return fields


class Backbone(BaseModule):
    """Common part of all backbones: images in, a tuple of feature maps out.

    Stages after the last of ``out_indices`` are not built, so no parameter is without a gradient.

    Attributes:
        channels: Channels of each returned map, in the order of ``out_indices``.
        strides: Stride of each returned map. A map has ceil(size / stride) rows and columns.
        depths: Blocks per stage.
    """

    def __init__(
        self,
        stage_channels: Sequence[int],
        stage_strides: Sequence[int],
        depths: Sequence[int],
        out_indices: Sequence[int],
        frozen_stages: int,
        init_cfg: dict | None,
    ) -> None:
        super().__init__(init_cfg=init_cfg)
        stages = len(stage_channels)
        if isinstance(out_indices, int):
            out_indices = (out_indices,)
        if not out_indices or any(i not in range(stages) for i in out_indices):
            raise UserError(f"out_indices={tuple(out_indices)}; allowed: 0 to {stages - 1}")
        if list(out_indices) != sorted(set(out_indices)):
            raise UserError(f"out_indices={tuple(out_indices)}; allowed: in order, each once")
        if frozen_stages not in range(-1, stages + 1):
            raise UserError(
                f"frozen_stages={frozen_stages}; allowed: -1 (nothing), 0 (stem), "
                f"1 to {stages} (stem and so many stages)"
            )
        self.depths = tuple(depths)
        self.out_indices = tuple(out_indices)
        self.frozen_stages = frozen_stages
        self.channels = tuple(stage_channels[i] for i in self.out_indices)
        self.strides = tuple(stage_strides[i] for i in self.out_indices)

    def initialise(self) -> None:
        """The published initial weights: Linear truncated normal .02, bias 0; LayerNorm 1, 0.

        Convolutions keep torch's default.
        """
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.trunc_normal_(module.weight, std=0.02)
                if module.bias is not None:
                    nn.init.zeros_(module.bias)
            elif isinstance(module, nn.LayerNorm):
                nn.init.ones_(module.weight)
                nn.init.zeros_(module.bias)

    def init_weights(self) -> None:
        """Nothing: weights are initialised when built, and loaded by ``polaformer.checkpoint``."""
        self._is_init = True

    def frozen_modules(self) -> list[nn.Module | nn.Parameter]:
        """Everything that ``frozen_stages`` freezes."""
        raise NotImplementedError

    def freeze(self) -> None:
        """Stop gradients in the frozen part and keep it in evaluation mode."""
        for part in self.frozen_modules():
            if isinstance(part, nn.Module):
                part.eval()
                part.requires_grad_(False)
            else:
                part.requires_grad_(False)

    def train(self, mode: bool = True) -> Backbone:
        """Switch the mode; frozen parts stay in evaluation mode."""
        super().train(mode)
        if mode and self.frozen_stages >= 0:
            self.freeze()
        return self

    def drop_path_rates(self, rate: float) -> list[list[float]]:
        """Stochastic-depth rates per stage and block, rising linearly from 0 to ``rate``."""
        rate = check_rate(rate, "drop_path_rate")
        steps = max(sum(self.depths) - 1, 1)
        rates = [rate * i / steps for i in range(sum(self.depths))]
        starts = [sum(self.depths[:i]) for i in range(len(self.depths))]
        return [
            rates[start : start + depth] for start, depth in zip(starts, self.depths, strict=True)
        ]

    def get_layer_depth(self, param_name: str, prefix: str = "") -> tuple[int, int]:
        """Depth of a parameter for layer-wise decay, and the number of depths.

        0 is the stem, block i of the network is i + 1; what joins two stages (merging, patches,
        position table) belongs to the block before it; output norms and heads are last.
        """
        num_layers = sum(self.depths) + 2
        if not param_name.startswith(prefix):
            return num_layers - 1, num_layers
        parts = param_name[len(prefix) :].split(".")
        if parts[0] in self.stem_names:
            return 0, num_layers
        if parts[0] != "stages":
            return num_layers - 1, num_layers
        stage = int(parts[1])
        before = sum(self.depths[:stage])
        if parts[2] == "blocks":
            return before + int(parts[3]) + 1, num_layers
        if parts[2] == "downsample":
            return before + self.depths[stage], num_layers
        return before, num_layers

    stem_names: tuple[str, ...] = ("patch_embed",)

    def no_weight_decay_keywords(self) -> set[str]:
        """Parameters that the published optimiser exempts beside 1-D tensors and biases."""
        return {"absolute_pos_embed", "relative_position_bias_table"}

    def usual_no_decay_keywords(self) -> set[str]:
        """The same plus what is commonly exempt: position tables, powers and scales."""
        extra = {"power", "scale", "positional_encoding", "pos_embed"}
        return self.no_weight_decay_keywords() | extra

    def forward(self, images: Tensor) -> tuple[Tensor, ...]:
        """Images [B, 3, H, W] to maps [B, channels[i], ceil(H / stride), ceil(W / stride)]."""
        raise NotImplementedError
