"""Focal losses (Lin et al., "Focal Loss for Dense Object Detection", ICCV 2017, equation 5).

For the probability ``p`` of what is true, the loss is ``-alpha * (1 - p) ** gamma * log(p)``.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
import torch.nn.functional as F
from torch import Tensor

PIECE = 2**20
"""How many values are worked on at once: temporary tensors stay small beside the predictions."""


def sigmoid_forward(
    input: Tensor, target: Tensor, weight: Tensor, output: Tensor, gamma: float, alpha: float
) -> None:
    """Write the loss of each of the C classes into ``output`` [N, C].

    ``input`` are logits [N, C], ``target`` the classes [N]; any number outside 0 … C - 1 means
    background, for which all classes are false. ``weight`` [C], or empty, multiplies the rows of
    each class; background counts once.
    """
    for rows, logit, _, factor in _pieces(input, target, weight, alpha):
        false = (-logit).sigmoid()
        output[rows] = false.pow_(gamma).mul_(F.logsigmoid(logit)).mul_(factor).neg_().to(output)


def sigmoid_backward(
    input: Tensor, target: Tensor, weight: Tensor, grad_input: Tensor, gamma: float, alpha: float
) -> None:
    """Write the derivative of each loss by its logit into ``grad_input`` [N, C]."""
    for rows, logit, sign, factor in _pieces(input, target, weight, alpha):
        false, true = (-logit).sigmoid(), logit.sigmoid()
        slope = torch.xlogy(true, true).mul_(-gamma).add_(false)
        slope.mul_(false.pow_(gamma)).mul_(factor).mul_(sign).neg_()
        grad_input[rows] = slope.to(grad_input)


def _pieces(
    input: Tensor, target: Tensor, weight: Tensor, alpha: float
) -> Iterator[tuple[slice, Tensor, Tensor, Tensor]]:
    """Rows, logits of what is true there, their sign against the input, and factors."""
    count, classes = input.shape
    if input.numel() == 0:
        return
    dtype = torch.promote_types(input.dtype, torch.float32)
    step = max(1, PIECE // classes)
    for start in range(0, count, step):
        rows = slice(start, start + step)
        label = target[rows, None]
        is_class = (label >= 0) & (label < classes)
        label = label.clamp(0, classes - 1)
        sign = torch.full(input[rows].shape, -1.0, dtype=dtype, device=input.device)
        sign.scatter_(1, label, is_class.to(dtype) * 2 - 1)
        factor = torch.where(sign > 0, alpha, 1 - alpha)
        if weight.numel():
            factor *= weight.to(dtype)[label].where(is_class, 1)
        yield rows, input[rows] * sign, sign, factor


def softmax_forward(
    input: Tensor, target: Tensor, weight: Tensor, output: Tensor, gamma: float, alpha: float
) -> None:
    """Write the loss of each row into ``output`` [N].

    ``input`` are probabilities [N, C]; a ``target`` outside 0 … C - 1 is ignored, its loss is 0.
    """
    true, factor, _ = _chosen(input, target, weight, alpha)
    tiny = torch.finfo(true.dtype).tiny
    output.copy_(-factor * (1 - true).pow(gamma) * true.clamp(min=tiny).log())


def softmax_backward(
    input: Tensor,
    target: Tensor,
    weight: Tensor,
    buff: Tensor,
    grad_input: Tensor,
    gamma: float,
    alpha: float,
) -> None:
    """Write the derivative of each row's loss by its logits into ``grad_input`` [N, C]."""
    true, factor, label = _chosen(input, target, weight, alpha)
    slope = -(1 - true).pow(gamma)
    if gamma:
        rest = (1 - true).clamp(min=torch.finfo(true.dtype).tiny)
        slope += gamma * rest.pow(gamma - 1) * torch.xlogy(true, true)
    slope = (slope * factor)[:, None]
    grad_input.copy_(input * -slope)
    if grad_input.numel():
        grad_input.scatter_add_(1, label, slope.to(grad_input))


def _chosen(
    input: Tensor, target: Tensor, weight: Tensor, alpha: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Probability of each row's target, its factor (0 if ignored), and the target [N, 1]."""
    dtype = torch.promote_types(input.dtype, torch.float32)
    known = (target >= 0) & (target < input.shape[1])
    label = target.where(known, 0)[:, None]
    factor = known.to(dtype) * alpha
    if weight.numel():
        factor = factor * weight.to(dtype)[label[:, 0]]
    return input.gather(1, label)[:, 0].to(dtype), factor, label
