"""PolaPVT: the PVT layout with polarity-aware linear attention (arXiv 2501.15061, 2102.12122)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from polaformer.attention import (
    ReducedAttention,
    attention_class,
    build_attention,
    parse_schedule,
    reduced_size,
)
from polaformer.attention.position import GridTable
from polaformer.backbones.base import Backbone, as_size, check_rate, resolve_arch
from polaformer.backbones.layers import Block, PatchEmbed, ceil_div, to_map
from polaformer.errors import UserError
from polaformer.registry import MODELS

Size = tuple[int, int]

_DIMS: dict[str, Any] = dict(
    embed_dims=(64, 128, 320, 512), num_heads=(1, 2, 5, 8), mlp_ratios=(8, 8, 4, 4)
)
ARCHS: dict[str, dict[str, Any]] = {
    "nano": dict(
        embed_dims=(32, 64, 96, 128),
        num_heads=(1, 2, 3, 4),
        mlp_ratios=(4, 4, 4, 4),
        depths=(1, 1, 2, 1),
        drop_path_rate=0.0,
    ),
    "tiny": dict(**_DIMS, depths=(2, 2, 2, 2), drop_path_rate=0.1),
    "small": dict(**_DIMS, depths=(3, 4, 6, 3), drop_path_rate=0.1),
    "medium": dict(**_DIMS, depths=(3, 4, 18, 3), drop_path_rate=0.3),
    "large": dict(**_DIMS, depths=(3, 8, 27, 3), drop_path_rate=0.3),
}


class PVTStage(nn.Module):
    """Patches at one resolution, their position table, and the blocks."""

    def __init__(
        self,
        patch_embed: PatchEmbed,
        grid_size: Size,
        dim: int,
        blocks: Sequence[Block],
        drop: float,
    ) -> None:
        super().__init__()
        self.grid_size = grid_size
        self.patch_embed = patch_embed
        self.pos_embed = nn.Parameter(torch.zeros(1, grid_size[0] * grid_size[1], dim))
        nn.init.trunc_normal_(self.pos_embed, std=0.02)
        self.pos_drop = nn.Dropout(drop)
        self.blocks = nn.ModuleList(blocks)
        self._positions = GridTable(grid_size, mode="bilinear")

    def forward(self, images: Tensor) -> tuple[Tensor, Size]:
        """A map [B, C, H, W] to tokens [B, N, C'] and their grid."""
        x, hw = self.patch_embed(images)
        x = self.pos_drop(x + self._positions(self.pos_embed, hw))
        for block in self.blocks:
            x = block(x, hw)
        return x, hw


@MODELS.register_module()
class PolaPVT(Backbone):
    """PVT layout with an attention chosen per block.

    Args:
        arch: 'nano', 'tiny', 'small', 'medium', 'large', or a dict with their fields over 'nano'.
        attention: Which attention each block gets; see ``polaformer.attention.schedule``.
            The released models are 'LLLL'.
        img_size: Image size, int or (H, W), at which position tables are made; any size works.
        patch_size: Side of the stem's patches; stage i has stride patch_size * 2**i.
        in_channels: Channels of the images.
        out_indices: Stages whose maps are returned.
        out_norm: LayerNorm on every returned map (the released classifiers have none).
        drop_path_rate: Stochastic depth of the last block; None takes the arch's published rate.
        drop_rate: Dropout in MLPs, after attention and after position tables.
        frozen_stages: -1 trains all; 0 and 1 freeze the first stage's patches and the first stage;
            i freezes the first i stages.
        with_cp: Recompute blocks in the backward pass to save memory.
        sr_ratios: Key/value reduction of softmax blocks per stage (published 8, 4, 2, 1).
        linear_sr_ratios: The same for linear blocks (published 1, 1, 1, 1).
        init_cfg: ``dict(type='Pretrained', checkpoint=FILE)`` is read by the runner.
    """

    def __init__(
        self,
        arch: str | dict = "tiny",
        attention: Any = "LLLL",
        img_size: int | Size = 224,
        patch_size: int = 4,
        in_channels: int = 3,
        out_indices: Sequence[int] = (3,),
        out_norm: bool = False,
        drop_path_rate: float | None = None,
        drop_rate: float = 0.0,
        frozen_stages: int = -1,
        with_cp: bool = False,
        sr_ratios: Sequence[int] = (8, 4, 2, 1),
        linear_sr_ratios: Sequence[int] = (1, 1, 1, 1),
        init_cfg: dict | None = None,
    ) -> None:
        arch = resolve_arch(arch, ARCHS, "PolaPVT")
        depths, dims = arch["depths"], arch["embed_dims"]
        check_rate(drop_rate, "drop_rate")
        patch_size = as_size(patch_size, "patch_size")[0]
        strides = [patch_size * 2**i for i in range(len(depths))]
        super().__init__(dims, strides, depths, out_indices, frozen_stages, init_cfg)
        self.arch = arch
        for field, ratios in (("sr_ratios", sr_ratios), ("linear_sr_ratios", linear_sr_ratios)):
            if len(ratios) != len(depths) or any(r < 1 for r in ratios):
                raise UserError(
                    f"PolaPVT: {field}={tuple(ratios)}; allowed: {len(depths)} numbers from 1 up"
                )
        self.ratios = {True: tuple(linear_sr_ratios), False: tuple(sr_ratios)}
        image = as_size(img_size, "img_size")
        rates = self.drop_path_rates(
            arch["drop_path_rate"] if drop_path_rate is None else drop_path_rate
        )
        schedule = parse_schedule(attention, depths)
        self.stages = nn.ModuleList()
        for i, dim in enumerate(dims[: self.out_indices[-1] + 1]):
            grid = ceil_div(image, strides[i])
            blocks = [
                Block(
                    self._attention(config, i, grid, drop_rate),
                    dim,
                    arch["mlp_ratios"][i],
                    drop=drop_rate,
                    drop_path=rates[i][j],
                    norm_eps=1e-6,
                    with_cp=with_cp,
                )
                for j, config in enumerate(schedule[i])
            ]
            source = dims[i - 1] if i else in_channels
            patches = PatchEmbed(source, dim, 2 if i else patch_size)
            self.stages.append(PVTStage(patches, grid, dim, blocks, drop_rate))
        self.norms = nn.ModuleDict(
            {str(i): nn.LayerNorm(dims[i], eps=1e-6) for i in self.out_indices if out_norm}
        )
        self.initialise()
        self.freeze()

    def _attention(self, config: dict, stage: int, grid: Size, drop_rate: float) -> nn.Module:
        ratio = self.ratios[attention_class(config).linear][stage]
        attn = build_attention(
            config,
            dim=self.arch["embed_dims"][stage],
            num_heads=self.arch["num_heads"][stage],
            grid_size=reduced_size(grid, ratio),
            proj_drop=drop_rate,
        )
        return ReducedAttention(attn, ratio) if ratio > 1 else attn

    def frozen_modules(self) -> list[nn.Module | nn.Parameter]:
        if self.frozen_stages < 0:
            return []
        return [self.stages[0].patch_embed, *self.stages[: self.frozen_stages]]

    def forward(self, images: Tensor) -> tuple[Tensor, ...]:
        grid, maps = images, []
        for i, stage in enumerate(self.stages):
            x, hw = stage(grid)
            grid = to_map(x, hw)
            if i in self.out_indices:
                maps.append(to_map(self.norms[str(i)](x), hw) if str(i) in self.norms else grid)
        return tuple(maps)
