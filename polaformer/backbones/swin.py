"""PolaSwin: the Swin layout with polarity-aware linear attention (arXiv 2501.15061, 2103.14030).

Linear blocks see the whole grid, at every image size; softmax blocks see (shifted) windows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor, nn

from polaformer.attention import WindowAttention, attention_class, build_attention, parse_schedule
from polaformer.backbones.base import Backbone, as_size, check_rate, resolve_arch
from polaformer.backbones.layers import Block, PatchEmbed, PatchMerging, ceil_div, to_map
from polaformer.registry import MODELS

Size = tuple[int, int]

ARCHS: dict[str, dict[str, Any]] = {
    "nano": dict(
        embed_dim=32, depths=(1, 1, 2, 1), num_heads=(1, 2, 4, 8), mlp_ratio=4.0, drop_path_rate=0.0
    ),
    "tiny": dict(
        embed_dim=96,
        depths=(2, 2, 6, 2),
        num_heads=(3, 6, 12, 24),
        mlp_ratio=4.0,
        drop_path_rate=0.2,
    ),
    "small": dict(
        embed_dim=96,
        depths=(2, 2, 18, 2),
        num_heads=(3, 6, 12, 24),
        mlp_ratio=4.0,
        drop_path_rate=0.3,
    ),
    "base": dict(
        embed_dim=128,
        depths=(2, 2, 18, 2),
        num_heads=(4, 8, 16, 32),
        mlp_ratio=4.0,
        drop_path_rate=0.5,
    ),
}


class SwinStage(nn.Module):
    """Blocks of one resolution, then the merging that halves it (absent in the last stage)."""

    def __init__(self, blocks: Sequence[Block], downsample: PatchMerging | None) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(blocks)
        self.downsample = downsample

    def forward(self, x: Tensor, hw: Size) -> Tensor:
        """Tokens [B, H*W, C] of the grid ``hw`` through all blocks."""
        for block in self.blocks:
            x = block(x, hw)
        return x


@MODELS.register_module()
class PolaSwin(Backbone):
    """Swin layout with an attention chosen per block.

    Args:
        arch: 'nano', 'tiny', 'small', 'base', or a dict with fields of these over 'nano'.
        attention: Which attention each block gets; see ``polaformer.attention.schedule``.
            The released models are 'LLSS'.
        img_size: Image size, int or (H, W), at which position tables and windows are made. Any
            other size works too; 384 with arch 'base' is the released B-384.
        patch_size: Side of the stem's patches; stage i has stride patch_size * 2**i.
        in_channels: Channels of the images.
        out_indices: Stages whose maps are returned.
        out_norm: LayerNorm on every returned map.
        drop_path_rate: Stochastic depth of the last block; None takes the arch's published rate.
        drop_rate: Dropout in MLPs and after attention.
        frozen_stages: -1 trains all; 0 freezes the stem; i freezes the stem and the first i stages.
        with_cp: Recompute blocks in the backward pass to save memory.
        window_size: Window of linear blocks, None for the whole grid.
        softmax_window_size: Window of softmax blocks; None takes the published rule, 7 while the
            first stage's grid is at most 56 wide at ``img_size``, else 12.
        init_cfg: ``dict(type='Pretrained', checkpoint=FILE)`` is read by the runner.
    """

    def __init__(
        self,
        arch: str | dict = "tiny",
        attention: Any = "LLSS",
        img_size: int | Size = 224,
        patch_size: int = 4,
        in_channels: int = 3,
        out_indices: Sequence[int] = (3,),
        out_norm: bool = True,
        drop_path_rate: float | None = None,
        drop_rate: float = 0.0,
        frozen_stages: int = -1,
        with_cp: bool = False,
        window_size: int | Size | None = None,
        softmax_window_size: int | Size | None = None,
        init_cfg: dict | None = None,
    ) -> None:
        arch = resolve_arch(arch, ARCHS, "PolaSwin")
        depths = arch["depths"]
        dims = [arch["embed_dim"] * 2**i for i in range(len(depths))]
        check_rate(drop_rate, "drop_rate")
        patch_size = as_size(patch_size, "patch_size")[0]
        strides = [patch_size * 2**i for i in range(len(depths))]
        super().__init__(dims, strides, depths, out_indices, frozen_stages, init_cfg)
        self.arch = arch
        grids = [ceil_div(as_size(img_size, "img_size"), stride) for stride in strides]
        if softmax_window_size is None:
            softmax_window_size = 7 if max(grids[0]) <= 56 else 12
        self.windows = {
            True: None if window_size is None else as_size(window_size, "window_size"),
            False: as_size(softmax_window_size, "softmax_window_size"),
        }
        rate = arch["drop_path_rate"] if drop_path_rate is None else drop_path_rate
        rates = self.drop_path_rates(rate)
        schedule = parse_schedule(attention, depths)

        self.patch_embed = PatchEmbed(in_channels, dims[0], patch_size)
        self.pos_drop = nn.Dropout(drop_rate)
        self.stages = nn.ModuleList()
        last = self.out_indices[-1]
        for i, dim in enumerate(dims[: last + 1]):
            blocks = [
                Block(
                    self._attention(config, dim, arch["num_heads"][i], grids[i], j, drop_rate),
                    dim,
                    arch["mlp_ratio"],
                    drop=drop_rate,
                    drop_path=rates[i][j],
                    with_cp=with_cp,
                )
                for j, config in enumerate(schedule[i])
            ]
            self.stages.append(SwinStage(blocks, None if i == last else PatchMerging(dim)))
        self.norms = nn.ModuleDict(
            {str(i): nn.LayerNorm(dims[i], eps=1e-5) for i in self.out_indices if out_norm}
        )
        self.initialise()
        self.freeze()

    def _attention(
        self, config: dict, dim: int, num_heads: int, grid: Size, index: int, drop_rate: float
    ) -> nn.Module:
        linear = attention_class(config).linear
        window = self.windows[linear]
        if not linear:
            config = {"relative_position_bias": True, **config}
        native = grid if window is None else (min(window[0], grid[0]), min(window[1], grid[1]))
        attn = build_attention(
            config, dim=dim, num_heads=num_heads, grid_size=native, proj_drop=drop_rate
        )
        if window is None:
            return attn
        return WindowAttention(attn, window, shifted=index % 2 == 1)

    def frozen_modules(self) -> list[nn.Module | nn.Parameter]:
        if self.frozen_stages < 0:
            return []
        return [self.patch_embed, self.pos_drop, *self.stages[: self.frozen_stages]]

    def forward(self, images: Tensor) -> tuple[Tensor, ...]:
        x, hw = self.patch_embed(images)
        x = self.pos_drop(x)
        maps = []
        for i, stage in enumerate(self.stages):
            x = stage(x, hw)
            if i in self.out_indices:
                out = self.norms[str(i)](x) if str(i) in self.norms else x
                maps.append(to_map(out, hw))
            if isinstance(stage.downsample, PatchMerging):
                x, hw = stage.downsample(x, hw)
        return tuple(maps)
