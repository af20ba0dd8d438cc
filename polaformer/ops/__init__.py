"""Attention as functions of tensors; a naive reference stands beside every fast form."""

from polaformer.ops.polar import Regions, polar_attention, polar_features
from polaformer.ops.softmax import softmax_attention

__all__ = ["Regions", "polar_attention", "polar_features", "softmax_attention"]
