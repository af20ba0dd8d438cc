"""What must agree between the parts of a built segmentation model, and what a step of it costs."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from polaformer.config.detection import fpn_strides
from polaformer.config.keys import Finding
from polaformer.config.segmentation_heads import compares_as_usual, heads_in
from polaformer.config.signatures import keywords_of, resolve
from polaformer.config.trial import missing_arguments

if TYPE_CHECKING:
    from torch import Tensor, nn

COUNTED = "backbone, neck and decode head"
COUNTED_WITHOUT = f"{COUNTED}; auxiliary heads work in training only"
_SIDE = 128
"""Side of the image on which the sizes of the maps are found out."""


def is_segmentor(model: Any) -> bool:
    """Whether a model has the parts of mmseg's encoder-decoders."""
    return hasattr(model, "decode_head") and hasattr(model, "extract_feat")


def counted_parts(model: Any) -> str:
    """What the cost of a model covers, in words."""
    return COUNTED_WITHOUT if modules_of(getattr(model, "auxiliary_head", None)) else COUNTED


def modules_of(part: Any) -> list[Any]:
    """The parts of a ModuleList, the part alone, or none."""
    if part is None:
        return []
    return list(part) if type(part).__name__ == "ModuleList" else [part]


# Maps and heads ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Maps:
    """The maps that heads are given."""

    channels: tuple[int, ...]
    strides: tuple[int, ...]
    whose: str
    """Who gives them, in words."""

    def __str__(self) -> str:
        return f"{self.whose} gives {len(self.channels)} maps of {list(self.channels)} channels"


def maps_of(backbone: Any, neck: Any) -> Maps | None:
    """The maps of a backbone (and neck) on the meta device, or None where they cannot be made.

    They are as declared, as by every backbone of ours, or else what comes out for an image.
    """
    name = type(backbone if neck is None else neck).__name__
    indices = getattr(backbone, "out_indices", None)
    if neck is None and isinstance(indices, Sequence):
        name += f" with out_indices={tuple(indices)}"
    found = _declared(backbone, neck) or _made(backbone, neck)
    return None if found is None else Maps(*found, name)


Declared = tuple[tuple[int, ...], tuple[int, ...]]
"""Channels and strides."""


def _declared(backbone: Any, neck: Any) -> Declared | None:
    if not isinstance(getattr(backbone, "channels", None), tuple):
        return None
    if neck is None:
        return backbone.channels, backbone.strides
    strides, width = fpn_strides(backbone, [neck]), getattr(neck, "out_channels", None)
    if strides is None or not isinstance(width, int):
        return None
    return (width,) * len(strides), tuple(strides)


def _made(backbone: Any, neck: Any) -> Declared | None:
    import torch

    channels = getattr(backbone, "in_channels", 3)
    channels = channels if isinstance(channels, int) else 3
    try:
        with torch.no_grad():
            maps = backbone(torch.empty(1, channels, _SIDE, _SIDE, device="meta"))
            maps = maps if neck is None else neck(maps)
            shapes = [tuple(one.shape) for one in maps]
    except Exception:  # what stops this image is told where the whole model takes one
        return None
    if not shapes or any(len(shape) != 4 for shape in shapes):
        return None
    return tuple(shape[1] for shape in shapes), tuple(round(_SIDE / s[-1]) for s in shapes)


def head_mismatches(
    model_cfg: Mapping[str, Any], maps: Maps, scope: str | None
) -> Iterator[Finding]:
    """Heads read maps that there are, of the channels and strides that these have."""
    for key, head in heads_in(model_cfg):
        target = resolve(head.get("type"), "MODELS", scope)
        takes = keywords_of(target).names if target is not None else ()
        if "in_channels" not in head and "in_channels" not in missing_arguments(head, scope):
            continue
        if {"in_channels", "in_index"} <= set(takes):
            yield from _head(key, head, maps)


def _head(key: str, head: Mapping[str, Any], maps: Maps) -> Iterator[Finding]:
    number, given = len(maps.channels), head.get("in_channels")
    chosen = head.get("in_index", -1)
    if isinstance(given, list | tuple) and isinstance(chosen, int):
        told = f"{chosen} is one map" if "in_index" in head else "missing"
        text = f"{told}, but in_channels has {len(given)}; write in_index={list(range(number))}"
        yield Finding(f"{key}.in_index", text)
        return
    indices = list(chosen) if isinstance(chosen, list | tuple) else [chosen]
    if not all(isinstance(index, int) for index in indices):
        return
    beyond = [index for index in indices if not -number <= index < number]
    if beyond:
        shown = ", ".join(map(str, beyond))
        text = f"there is no map {shown}: {maps}; allowed: 0 to {number - 1}"
        yield Finding(f"{key}.in_index", text)
        return
    channels = [maps.channels[index] for index in indices]
    wanted: Any = channels if isinstance(chosen, list | tuple) else channels[0]
    if _plain(given) != wanted:
        read = f"of maps {indices}" if isinstance(wanted, list) else f"of map {chosen}"
        told = "missing" if given is None else _plain(given)
        text = f"{told}, but {maps}; write in_channels={wanted}, those {read}"
        yield Finding(f"{key}.in_channels", text)
    strides = [maps.strides[index] for index in indices]
    named = head.get("feature_strides")
    if named is not None and _plain(named) != strides:
        text = f"{_plain(named)}, but the maps have strides {strides}; write "
        yield Finding(f"{key}.feature_strides", f"{text}feature_strides={strides}")


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, list | tuple) else value


def neck_mismatch(backbone: Any, neck_cfg: Mapping[str, Any]) -> Iterator[Finding]:
    """A neck reads as many maps as the backbone gives, of their channels."""
    maps = maps_of(backbone, None)
    given = _plain(neck_cfg.get("in_channels"))
    if maps is None or not isinstance(given, list) or given == list(maps.channels):
        return
    text = f"{given}, but {maps}; write in_channels={list(maps.channels)}"
    yield Finding("model.neck.in_channels", text)


# A step -----------------------------------------------------------------------------------------


def one_by_one(model: nn.Module) -> nn.Module | None:
    """The model as a function of images alone, or None where a head needs more than the maps.

    In training the auxiliary heads work too, and the scores of every head are brought to the size
    of the masks and compared, as in a step; images are [B, C, H, W].
    """
    import torch.nn.functional as functional
    from torch import nn

    own: Any = model
    heads = [*modules_of(own.decode_head), *modules_of(getattr(own, "auxiliary_head", None))]
    if any(_needed(head.forward) != 1 for head in heads) or len(modules_of(own.decode_head)) != 1:
        return None

    class Step(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.segmentor = model
            self.backbone = own.backbone

        def forward(self, images: Tensor) -> Any:
            maps = own.extract_feat(images)
            if not self.training:
                return own.decode_head(maps)
            size = images.shape[-2:]
            scores = [score for head in heads for score in _tensors(head(maps))]
            # Whatever the loss is, it keeps what it made of the scores at the size of the masks.
            return [
                functional.interpolate(one, size, mode="bilinear").log_softmax(dim=1)
                if one.dim() == 4
                else one
                for one in scores
            ]

    return Step()


def _needed(function: Any) -> int:
    """Number of arguments without a default."""
    parameters = inspect.signature(function).parameters.values()
    return sum(
        p.default is p.empty and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD) for p in parameters
    )


def _tensors(output: Any) -> Iterator[Any]:
    if isinstance(output, list | tuple):
        for one in output:
            yield from _tensors(one)
    elif hasattr(output, "dim"):
        yield output


def synchronised(model: nn.Module) -> list[str]:
    """Names of the layers that normalise over all processes."""
    return [name for name, part in model.named_modules() if _synchronises(part)]


def _synchronises(part: Any) -> bool:
    return "SyncBatchNorm" in type(part).__name__


def starved_norms(step: nn.Module, images: tuple[int, ...]) -> list[str]:
    """Batch norms that get a single value for each channel in training, which torch refuses.

    ``step`` is on the meta device; ``images`` is the shape of a batch of one process.
    """
    import torch

    found: list[str] = []
    kind = torch.nn.modules.batchnorm._BatchNorm

    def look(name: str) -> Any:
        def hook(part: Any, inputs: tuple[Any, ...]) -> None:
            values = inputs[0].numel() // max(inputs[0].shape[1], 1)
            if part.training and values <= 1:
                found.append(name)

        return hook

    handles = [
        part.register_forward_pre_hook(look(name.removeprefix("segmentor.")))
        for name, part in step.named_modules()
        if isinstance(part, kind)
    ]
    step.train()
    try:
        with torch.no_grad():
            step(torch.empty(images, device="meta"))
    except ValueError:
        if not found:
            raise
    finally:
        step.eval()
        for handle in handles:
            handle.remove()
    return found


def leaves_maps(model_cfg: Mapping[str, Any]) -> bool:
    """Whether the heads' ``in_index``, taken together, leave out a map that there may be."""
    read: set[Any] = set()
    for _, head in heads_in(model_cfg):
        chosen = head.get("in_index", -1)
        read.update(chosen if isinstance(chosen, list | tuple) else [chosen])
    indices = (model_cfg.get("backbone") or {}).get("out_indices")
    number = len(indices) if isinstance(indices, list | tuple) else 4
    return any(i not in read and i - number not in read for i in range(number))


def unread(step: nn.Module, shape: tuple[int, ...]) -> list[str]:
    """Names of the trained parameters that no head's output depends on."""
    import torch

    named = {n.removeprefix("segmentor."): p for n, p in step.named_parameters() if p.requires_grad}
    step.train()
    try:
        outputs = step(torch.empty(shape, device="meta"))
        gradients = torch.autograd.grad(
            sum(one.sum() for one in outputs), list(named.values()), allow_unused=True
        )
    finally:
        step.eval()
    return [name for name, one in zip(named, gradients, strict=True) if one is None]


# Losses -----------------------------------------------------------------------------------------


def loss_mistakes(model: Any, cfg: Mapping[str, Any]) -> Iterator[Finding]:
    """What the losses of each head refuse, tried on small masks with every class and 255.

    Heads that compare in a way of their own are left out.
    """
    keys = [key for key, _ in heads_in(cfg)]
    heads = [*modules_of(model.decode_head), *modules_of(getattr(model, "auxiliary_head", None))]
    for key, head in zip(keys, heads, strict=True):
        if compares_as_usual(type(head)):
            told = _refused(head)
            if told and any(type(one).__name__ in _OURS for one in modules_of(head.loss_decode)):
                told += f"; polaformer.{_OURS['CrossEntropyLoss']} takes such masks"
            if told:
                yield Finding(f"{key}.loss_decode", told)


_OURS = {"CrossEntropyLoss": "PixelCrossEntropy"}


def _refused(head: Any) -> str | None:
    """The sentence about a loss that fails on a batch, or None."""
    import torch
    from mmengine.structures import BaseDataElement, PixelData

    number, side = head.num_classes, 32
    labels = torch.arange(side * side).reshape(1, side, side) % number
    labels[0, 0] = 255
    sample = BaseDataElement(gt_sem_seg=PixelData(data=labels))
    with torch.random.fork_rng(devices=[]), torch.device("cpu"):
        torch.manual_seed(0)
        scores = torch.randn(2, head.out_channels, side, side, requires_grad=True)
        try:
            losses = head.loss_by_feat(scores, [sample, sample])
            sum(v for n, v in losses.items() if "loss" in n).backward()
        except Exception as error:  # whatever stops this batch stops the first of the training
            lines = str(error).splitlines() or [""]
            name = f"{type(error).__name__}: {lines[0]}".rstrip(": ")
            return f"fails on masks with all {number} classes and pixels of 255: {name}"
    return None
