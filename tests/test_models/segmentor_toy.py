"""Small segmentors of mmseg's parts, and their samples, for the tests of this folder."""

from __future__ import annotations

from collections.abc import Callable

import torch
from mmengine.registry import MODELS
from mmengine.structures import PixelData
from torch import Tensor

CLASSES = 5
GN = dict(type="GN", num_groups=4)


def config(classes: int = CLASSES, **changes) -> dict:
    """Semantic FPN on the smallest PolaPVT; ``changes`` replace keys, those of the head merge."""
    head = dict(
        type="FPNHead",
        in_channels=[16] * 4,
        in_index=[0, 1, 2, 3],
        feature_strides=[4, 8, 16, 32],
        channels=8,
        num_classes=classes,
        norm_cfg=GN,
        dropout_ratio=0.0,
        align_corners=False,
        loss_decode=dict(type="polaformer.PixelCrossEntropy"),
    )
    return {
        "type": "polaformer.Segmentor",
        "backbone": dict(type="polaformer.PolaPVT", arch="nano", out_indices=(0, 1, 2, 3)),
        "neck": dict(type="FPN", in_channels=[32, 64, 96, 128], out_channels=16, num_outs=4),
        "train_cfg": {},
        "test_cfg": dict(mode="whole"),
        **changes,
        "decode_head": {**head, **changes.pop("decode_head", {})},
    }


def aux(**changes) -> dict:
    """An auxiliary head on the neck's second map."""
    return {
        "type": "FCNHead",
        "in_channels": 16,
        "in_index": 1,
        "channels": 8,
        "num_convs": 1,
        "concat_input": False,
        "num_classes": CLASSES,
        "norm_cfg": GN,
        "loss_decode": dict(type="polaformer.PixelCrossEntropy"),
        **changes,
    }


def build(cfg: dict, like: Tensor | None = None):
    """The model in evaluation mode; on images ``like`` every class wins somewhere."""
    torch.manual_seed(0)
    model = MODELS.build(cfg).eval()
    head = model.decode_head.conv_seg
    torch.nn.init.normal_(head.weight, std=1.0)
    torch.nn.init.zeros_(head.bias)
    with torch.no_grad():
        logits = model(torch.randn(1, 3, 64, 64) if like is None else like)
        head.bias.copy_(-logits.mean(dim=(0, 2, 3)))
    return model


def sample(truth: Tensor | None = None, **meta):
    """A data sample of mmseg; ``truth`` is [H, W]."""
    from mmseg.structures import SegDataSample

    made = SegDataSample(metainfo=meta)
    if truth is not None:
        made.gt_sem_seg = PixelData(data=truth[None].long())
    return made


def truths(count: int, height: int, width: int, classes: int = CLASSES) -> list[Tensor]:
    """Random labels whose first rows are ignored."""
    generator = torch.Generator().manual_seed(1)
    made = torch.randint(0, classes, (count, height, width), generator=generator)
    made[:, : height // 8] = 255
    return list(made)


def peak_bytes(work: Callable[[], object]) -> int:
    """The most bytes of tensors alive at once that ``work`` allocated, by torch's profiler."""
    with torch.profiler.profile(
        activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True
    ) as run:
        kept = work()
    del kept
    events = [e for e in run.profiler.kineto_results.events() if e.name() == "[memory]"]
    held = peak = 0
    for event in sorted(events, key=lambda e: e.start_ns()):
        held += event.nbytes()
        peak = max(peak, held)
    return peak
