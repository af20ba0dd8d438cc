"""A step of a segmentation model on the meta device: what it costs, starves and leaves unread."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from polaformer.config.keys import Finding
from polaformer.config.segmentation import modules_of
from polaformer.config.segmentation_heads import compares_as_usual, heads_in

if TYPE_CHECKING:
    from torch import Tensor, nn

COUNTED = "backbone, neck and decode head"
COUNTED_WITHOUT = f"{COUNTED}; auxiliary heads work in training only"


def counted_parts(model: Any) -> str:
    """What the cost of a model covers, in words."""
    return COUNTED_WITHOUT if modules_of(getattr(model, "auxiliary_head", None)) else COUNTED


def heads_of(model: Any) -> list[Any]:
    """The heads that decide, then those that only help in training."""
    return [*modules_of(model.decode_head), *modules_of(getattr(model, "auxiliary_head", None))]


def compares(head: Any) -> bool:
    """``compares_as_usual`` of a built head."""
    return compares_as_usual(type(head))


def one_by_one(model: nn.Module) -> nn.Module | None:
    """The model as a function of images alone, or None where a head needs more than the maps.

    In training the auxiliary heads work too, and the scores of every head are brought to the size
    of the masks and compared, as in a step; images are [B, C, H, W].
    """
    import torch.nn.functional as functional
    from torch import nn

    own: Any = model
    heads = heads_of(own)
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
    for key, head in zip(keys, heads_of(model), strict=True):
        if compares(head):
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
