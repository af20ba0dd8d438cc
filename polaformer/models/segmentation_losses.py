"""Losses over the pixels of a batch for mmseg's heads; ignored pixels take no part, always in fp32.

A head calls ``loss(logits [N, C, H, W], labels [N, H, W], weight=[N, H, W] or None,
ignore_index=255)``; the weight is what a pixel sampler such as OHEMPixelSampler chose.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from polaformer.errors import UserError, did_you_mean
from polaformer.registry import MODELS

AVERAGES = ("weights", "pixels")
REDUCTIONS = (None, "none", "mean", "sum")


class PixelLoss(nn.Module):
    """What the losses below share: name, weight, and half types kept out.

    A head with one output channel has two classes: its logit is that of class 1 against 0.
    """

    def __init__(self, loss_weight: float, loss_name: str) -> None:
        super().__init__()
        _check_number("loss_weight", loss_weight, 0, float("inf"))
        self.loss_weight = loss_weight
        self.loss_name = loss_name

    def forward(
        self,
        pred: Tensor,
        label: Tensor,
        weight: Tensor | None = None,
        avg_factor: float | None = None,
        reduction_override: str | None = None,
        ignore_index: int = 255,
    ) -> Tensor:
        """The loss: a scalar, or [N, H, W] where ``reduction_override`` is 'none'.

        Args:
            pred: logits [N, C, H, W].
            label: class indices [N, H, W]; ``ignore_index`` marks pixels without a class.
            weight: how much each pixel counts, [N, H, W], at least 0.
            avg_factor: what the sum is divided by, instead of the loss's own average.
            reduction_override: 'mean' (as None), 'sum' or 'none'.
        """
        if reduction_override not in REDUCTIONS:
            raise ValueError(f"reduction_override={reduction_override!r}; allowed: {REDUCTIONS}")
        with torch.autocast(pred.device.type, enabled=False):
            logits = pred.float()
            if logits.shape[1] == 1:
                logits = torch.cat([torch.zeros_like(logits), logits], dim=1)
            counts = (label != ignore_index).float()
            label = torch.where(label == ignore_index, 0, label).long()
            if weight is not None:
                counts = counts * weight.float()
            loss = self.reduced(logits, label, counts, avg_factor, reduction_override or "mean")
        return self.loss_weight * loss

    def reduced(
        self,
        logits: Tensor,
        label: Tensor,
        counts: Tensor,
        avg_factor: float | None,
        reduction: str,
    ) -> Tensor:
        """The loss before ``loss_weight``; ``counts`` [N, H, W] is 0 at ignored pixels."""
        raise NotImplementedError


@MODELS.register_module()
class PixelCrossEntropy(PixelLoss):
    """Cross entropy with class weights, averaged over the pixels that count.

    As ``torch.nn.functional.cross_entropy(weight=class_weight, ignore_index=255)``, to which
    pixel weights are added. (mmseg 1.2.2's CrossEntropyLoss fails where class weights meet ignored
    pixels, and averages over pixels that its sampler left out.)

    Args:
        class_weight: one weight for each class, at least 0, or None for 1 each.
        label_smoothing: in 0..1, the part of each label that is spread over all classes.
        gamma: 0, or from 1 up: a pixel whose class has probability p counts (1 - p)^gamma of its
            loss (focal loss, Lin et al., arXiv 1708.02002); the divisor stays as it is.
        background_weight: that of class 0 alone, for any number of classes; not beside
            ``class_weight``.
        avg: 'weights' divides by the sum of the weights of the pixels' classes, 'pixels' by the
            number of pixels. Without class weights they are the same.

    Raises:
        UserError: another number of class weights than the head has classes; both kinds of weights.
    """

    def __init__(
        self,
        class_weight: Sequence[float] | None = None,
        label_smoothing: float = 0.0,
        gamma: float = 0.0,
        loss_weight: float = 1.0,
        loss_name: str = "loss_ce",
        avg: str = "weights",
        background_weight: float = 1.0,
    ) -> None:
        super().__init__(loss_weight, loss_name)
        _check_number("label_smoothing", label_smoothing, 0, 1)
        if avg not in AVERAGES:
            hint = did_you_mean(str(avg), AVERAGES)
            raise UserError(f"avg={avg!r}; allowed: {', '.join(AVERAGES)}. {hint}".rstrip())
        if gamma != 0:
            _check_number("gamma", gamma, 1, float("inf"))
        _check_number("background_weight", background_weight, 0, float("inf"))
        if class_weight is not None and background_weight != 1:
            raise UserError(
                f"PixelCrossEntropy has class_weight and background_weight={background_weight}; "
                "write only one of the two"
            )
        self.label_smoothing, self.gamma, self.avg = label_smoothing, gamma, avg
        self.background_weight = background_weight
        # A list, not a buffer: a head that a dry run builds without memory can try its losses.
        self.class_weight = _class_weights(class_weight)

    def reduced(
        self,
        logits: Tensor,
        label: Tensor,
        counts: Tensor,
        avg_factor: float | None,
        reduction: str,
    ) -> Tensor:
        weights = self._weights_for(logits)
        log_p = logits.log_softmax(dim=1)
        of_label = log_p.gather(1, label[:, None])[:, 0]
        of_class = torch.ones_like(of_label) if weights is None else weights[label]
        losses = -of_label * of_class
        if self.label_smoothing:
            share = logits.new_ones(logits.shape[1]) if weights is None else weights
            spread = -(share / len(share) @ log_p.flatten(2)).view_as(losses)
            losses = losses * (1 - self.label_smoothing) + spread * self.label_smoothing
        if self.gamma:
            losses = losses * (-torch.expm1(of_label)) ** self.gamma
        losses = losses * counts
        if reduction == "none":
            return losses
        total = losses.sum()
        if reduction == "sum":
            return total
        if avg_factor is not None:
            return total / _or_one(total.new_tensor(avg_factor))
        return total / _or_one((counts * of_class if self.avg == "weights" else counts).sum())

    def _weights_for(self, logits: Tensor) -> Tensor | None:
        given, classes = self.class_weight, logits.shape[1]
        if given is None and self.background_weight == 1:
            return None
        if given is None:
            given = [self.background_weight] + [1.0] * (classes - 1)
        if len(given) != classes:
            raise UserError(
                f"PixelCrossEntropy.class_weight has {len(given)} weights, but the head has "
                f"{classes} classes; give one for each class, in the order of the classes"
            )
        return logits.new_tensor(given)


@MODELS.register_module()
class PixelDice(PixelLoss):
    """1 minus the soft Dice coefficient, averaged over the classes that are in the batch.

    Of class c with softmax p and truth t in {0, 1}, over all pixels of the batch that count:
    ``2 sum(p t) / (sum(p^power) + sum(t))`` (Milletari et al., arXiv 1606.04797, with power 2).
    A class without a pixel in the batch is left out. (mmseg 1.2.2's DiceLoss takes predictions at
    ignored pixels for wrong ones, sums up the classes before it divides, and refuses the
    weights of a pixel sampler.)

    With ``reduction_override='none'`` every pixel gets the same value, the loss: a sampler that
    ranks pixels by their losses is left to the other ones.

    Args:
        background: whether class 0 takes part.
        power: 1 or 2, of the softmax in the divisor.
    """

    def __init__(
        self,
        loss_weight: float = 1.0,
        loss_name: str = "loss_dice",
        background: bool = True,
        power: int = 1,
    ) -> None:
        super().__init__(loss_weight, loss_name)
        if power not in (1, 2):
            raise UserError(f"PixelDice.power={power!r}; allowed: 1, 2")
        self.background, self.power = background, power

    def reduced(
        self,
        logits: Tensor,
        label: Tensor,
        counts: Tensor,
        avg_factor: float | None,
        reduction: str,
    ) -> Tensor:
        classes = logits.shape[1]
        p = logits.softmax(dim=1)
        hit = p.gather(1, label[:, None])[:, 0] * counts
        flat = label.flatten()
        both = logits.new_zeros(classes).index_add(0, flat, hit.flatten())
        truth = logits.new_zeros(classes).index_add(0, flat, counts.flatten())
        predicted = torch.einsum("nchw,nhw->c", p if self.power == 1 else p.square(), counts)
        present = (truth > 0).float()
        if not self.background:
            present[0] = 0
        losses = (1 - 2 * both / _or_one(predicted + truth)) * present
        if reduction == "sum":
            return losses.sum()
        divisor = present.sum() if avg_factor is None else present.new_tensor(avg_factor)
        mean = losses.sum() / _or_one(divisor)
        return mean.expand(label.shape) if reduction == "none" else mean


def _or_one(divisor: Tensor) -> Tensor:
    """A divisor, 1 where it is 0: nothing divided by it is nothing."""
    return torch.where(divisor == 0, torch.ones_like(divisor), divisor)


def _class_weights(given: Sequence[float] | None) -> list[float] | None:
    if given is None:
        return None
    good = not isinstance(given, str) and isinstance(given, Sequence) and len(given) > 0
    if not good or any(isinstance(w, bool) or not isinstance(w, int | float) for w in given):
        raise UserError(f"PixelCrossEntropy.class_weight={given!r}; allowed: a list of numbers")
    if not all(math.isfinite(w) and w >= 0 for w in given) or not any(given):
        raise UserError(
            f"PixelCrossEntropy.class_weight={list(given)}; allowed: numbers >= 0, not all 0"
        )
    return [float(w) for w in given]


def _check_number(name: str, value: float, least: float, most: float) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value <= most:
        limits = f">= {least}" if most == float("inf") else f"from {least} to {most}"
        raise UserError(f"{name}={value!r}; allowed: a number {limits}")
