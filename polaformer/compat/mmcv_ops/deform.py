"""Deformable convolutions over torchvision's operation, which agrees with mmcv's on every layout.

Dai et al., "Deformable Convolutional Networks", ICCV 2017; Zhu et al., "Deformable ConvNets v2",
CVPR 2019. Input [N, C, H, W], weight [O, C / group, kH, kW], offset
[N, 2 * deformable_group * kH * kW, H', W'] as (y, x) pairs, mask half as many channels.
mmcv's buffers ``columns`` and ``ones`` are not used, and ``im2col_step`` changes no result.
"""

from __future__ import annotations

import torch
import torchvision  # noqa: F401  (registers its operations)
from torch import Tensor

Settings = tuple[int, ...]
"""Stride, padding and dilation as (height, width) each, then groups and deformable groups."""

FAR = 2**20
"""An offset, in pixels, from any place to one outside the map."""


def forward(
    input: Tensor,
    weight: Tensor,
    offset: Tensor,
    output: Tensor,
    columns: Tensor,
    ones: Tensor,
    kW: int,
    kH: int,
    dW: int,
    dH: int,
    padW: int,
    padH: int,
    dilationW: int,
    dilationH: int,
    group: int,
    deformable_group: int,
    im2col_step: int,
) -> None:
    """Write the convolution into ``output`` [N, O, H', W']."""
    settings = (dH, dW, padH, padW, dilationH, dilationW, group, deformable_group)
    _convolve(output, input, weight, offset, None, None, settings)


def backward_input(
    input: Tensor,
    offset: Tensor,
    grad_output: Tensor,
    grad_input: Tensor,
    grad_offset: Tensor,
    weight: Tensor,
    columns: Tensor,
    kW: int,
    kH: int,
    dW: int,
    dH: int,
    padW: int,
    padH: int,
    dilationW: int,
    dilationH: int,
    group: int,
    deformable_group: int,
    im2col_step: int,
) -> None:
    """Write the gradients of the input and of the offsets."""
    settings = (dH, dW, padH, padW, dilationH, dilationW, group, deformable_group)
    grads = _gradients(grad_output, input, weight, offset, None, settings)
    grad_input.copy_(grads[0])
    grad_offset.copy_(grads[2])


def backward_parameters(
    input: Tensor,
    offset: Tensor,
    grad_output: Tensor,
    grad_weight: Tensor,
    columns: Tensor,
    ones: Tensor,
    kW: int,
    kH: int,
    dW: int,
    dH: int,
    padW: int,
    padH: int,
    dilationW: int,
    dilationH: int,
    group: int,
    deformable_group: int,
    scale: float,
    im2col_step: int,
) -> None:
    """Write the gradient of the weight, times ``scale``."""
    settings = (dH, dW, padH, padW, dilationH, dilationW, group, deformable_group)
    # The gradient of the weight does not depend on the weight.
    grads = _gradients(grad_output, input, grad_weight, offset, None, settings)
    grad_weight.copy_(grads[1] * scale)


def modulated_forward(
    input: Tensor,
    weight: Tensor,
    bias: Tensor,
    ones: Tensor,
    offset: Tensor,
    mask: Tensor,
    output: Tensor,
    columns: Tensor,
    kernel_h: int,
    kernel_w: int,
    stride_h: int,
    stride_w: int,
    pad_h: int,
    pad_w: int,
    dilation_h: int,
    dilation_w: int,
    group: int,
    deformable_group: int,
    with_bias: bool,
) -> None:
    """Write the convolution of samples times ``mask`` into ``output`` [N, O, H', W']."""
    settings = (stride_h, stride_w, pad_h, pad_w, dilation_h, dilation_w, group, deformable_group)
    _convolve(output, input, weight, offset, mask, bias if with_bias else None, settings)


def modulated_backward(
    input: Tensor,
    weight: Tensor,
    bias: Tensor,
    ones: Tensor,
    offset: Tensor,
    mask: Tensor,
    columns: Tensor,
    grad_input: Tensor,
    grad_weight: Tensor,
    grad_bias: Tensor,
    grad_offset: Tensor,
    grad_mask: Tensor,
    grad_output: Tensor,
    kernel_h: int,
    kernel_w: int,
    stride_h: int,
    stride_w: int,
    pad_h: int,
    pad_w: int,
    dilation_h: int,
    dilation_w: int,
    group: int,
    deformable_group: int,
    with_bias: bool,
) -> None:
    """Write the gradients of everything that the convolution depends on."""
    settings = (stride_h, stride_w, pad_h, pad_w, dilation_h, dilation_w, group, deformable_group)
    grads = _gradients(grad_output, input, weight, offset, mask, settings)
    for target, grad in zip((grad_input, grad_weight, grad_offset, grad_mask), grads, strict=True):
        target.copy_(grad)
    if with_bias:
        grad_bias.copy_(grad_output.sum((0, 2, 3), dtype=grads[0].dtype))


def _convolve(
    output: Tensor,
    input: Tensor,
    weight: Tensor,
    offset: Tensor,
    mask: Tensor | None,
    bias: Tensor | None,
    settings: Settings,
) -> None:
    tensors, lost = _arguments(input, weight, offset, mask)
    none = tensors[0].new_zeros(weight.shape[0])
    bias = none if bias is None else bias.to(none.dtype)
    result = torch.ops.torchvision.deform_conv2d(*tensors, bias, *settings, mask is not None)
    output.copy_(result)
    output.masked_fill_(lost, torch.nan)


def _gradients(
    grad_output: Tensor,
    input: Tensor,
    weight: Tensor,
    offset: Tensor,
    mask: Tensor | None,
    settings: Settings,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Gradients of input, weight, offset and mask."""
    tensors, lost = _arguments(input, weight, offset, mask)
    bias = tensors[0].new_zeros(weight.shape[0])
    grad = grad_output.to(bias.dtype).masked_fill(lost, 0)
    return torch.ops.torchvision._deform_conv2d_backward(
        grad, *tensors, bias, *settings, mask is not None
    )[:4]


def _arguments(
    input: Tensor, weight: Tensor, offset: Tensor, mask: Tensor | None
) -> tuple[tuple[Tensor, Tensor, Tensor, Tensor], Tensor]:
    """What torchvision takes, in single precision at least, and which places [N, 1, H', W'] lost.

    An offset becomes an address: one that is no number is to make the result NaN at its place, and
    one beyond any map stays beyond it as a number that fits into an integer.
    """
    dtype = torch.promote_types(input.dtype, torch.float32)
    unknown = offset.isnan()
    offset = offset.to(dtype).clamp(-FAR, FAR).masked_fill_(unknown, 0)
    mask = offset.new_zeros(input.shape[0], 1) if mask is None else mask.to(dtype)
    return (input.to(dtype), weight.to(dtype), offset, mask), unknown.any(1, keepdim=True)
