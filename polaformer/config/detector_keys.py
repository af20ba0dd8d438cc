"""Keys of dicts that detectors and segmentors read by name, so that no signature holds them.

Collected from what the classes of mmdet 3.3.0 (``models/dense_heads``, ``models/detectors``,
``models/roi_heads``) read of their ``train_cfg`` and ``test_cfg``, and mmcv 2.1.0
(``ops/nms.py::batched_nms``) of ``nms``. A key beyond them has no effect there, and mmdet does not
say so: a misspelt ``score_thr`` is an error after the first epoch, a misspelt ``nms_pre`` never.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from polaformer.config.signatures import Keywords
from polaformer.errors import did_you_mean

_NMS = ("nms", "nms_pre", "max_per_img", "min_bbox_size")
_ASSIGN = ("assigner", "sampler", "pos_weight", "debug")
_PROPOSAL = (*_NMS, "nms_post", "max_num", "nms_thr", "nms_across_levels", "score_thr")
_GUIDED = ("ga_assigner", "ga_sampler", "center_ratio", "ignore_ratio")
_PISA = ("isr", "carl")
_POINTS = ("num_points", "oversample_ratio", "importance_sample_ratio")
_RENDER = ("subdivision_steps", "subdivision_num_points", "scale_factor")

TWO_STAGE: dict[str, tuple[str, ...]] = {
    "train_cfg": ("rpn", "rpn_proposal", "rcnn"),
    "train_cfg.rpn": (*_ASSIGN, "allowed_border", *_GUIDED),
    "train_cfg.rpn_proposal": _PROPOSAL,
    "train_cfg.rcnn": (
        *_ASSIGN,
        *_PISA,
        *_POINTS,
        *("mask_size", "mask_thr_binary", "dynamic_rcnn", "pos_radius", "max_num_grid"),
    ),
    "test_cfg": ("rpn", "rcnn", "panoptic", "chunked_size"),
    "test_cfg.rpn": _PROPOSAL,
    "test_cfg.rcnn": (*_NMS, "score_thr", "mask_thr_binary", "mask_thr", *_RENDER),
}
"""Detectors with ``roi_head``: key below ``model`` -> what is read there."""

ONE_STAGE: dict[str, tuple[str, ...]] = {
    "train_cfg": (
        *_ASSIGN,
        *_PISA,
        *_GUIDED,
        *("allowed_border", "alpha", "beta", "initial_epoch", "initial_assigner", "init", "refine"),
        *("reg_assigner", "neg_pos_ratio", "smoothl1_beta", "gamma"),
    ),
    "test_cfg": (
        *(*_NMS, "nms_cfg", "nms_post", "nms_across_levels", "score_thr", "conf_thr", "iou_thr"),
        *("mask_thr", "mask_thr_binary", "filter_thr", "top_k", "topk", "corner_topk", "kernel"),
        *(
            "sigma",
            "distance_threshold",
            "local_maximum_kernel",
            "with_nms",
            "chunked_size",
            "score_voting",
        ),
    ),
}
"""Detectors with ``bbox_head`` at the top."""

_WINDOWS = ("mode", "crop_size", "stride")
SEGMENTOR: dict[str, tuple[str, ...]] = {
    "train_cfg": _POINTS,
    "test_cfg": (*_WINDOWS, *_RENDER),
    "data_preprocessor.test_cfg": ("size", "size_divisor"),
}
"""Models of mmseg 1.2.2 with ``decode_head``; points and subdivisions are PointRend's."""

OWN_SEGMENTOR: dict[str, tuple[str, ...]] = {
    **SEGMENTOR,
    "test_cfg": (*_WINDOWS, "batch", "pixel_loss"),
}
"""``polaformer.Segmentor``."""

NUMBERS: dict[str, type] = {
    **dict.fromkeys(("nms_pre", "nms_post", "max_per_img", "max_num", "split_thr"), int),
    **dict.fromkeys(("min_bbox_size", "score_thr", "nms_thr", "mask_thr_binary"), float),
    **dict.fromkeys(("allowed_border", "pos_weight", "iou_threshold", "score_threshold"), float),
    **dict.fromkeys(("min_score", "sigma"), float),
    **dict.fromkeys(("debug", "class_agnostic"), bool),
}
"""Keys of which every reader expects the same kind of value."""

_BATCHED = ("type", "iou_threshold", "iou_thr", "class_agnostic", "split_thr", "offset")
NMS_TYPES: dict[str, tuple[str, ...]] = {
    "nms": (*_BATCHED, "score_threshold", "max_num"),
    "soft_nms": (*_BATCHED, "sigma", "min_score", "method", "max_num"),
}
"""Function that ``nms.type`` names -> keys of the dict."""

ROI_LAYERS: dict[str, tuple[str, ...] | None] = {
    "RoIAlign": ("type", "output_size", "spatial_scale", "sampling_ratio", "pool_mode", "aligned")
    + ("use_torchvision",),
    "RoIPool": ("type", "output_size", "spatial_scale"),
    **dict.fromkeys(("SimpleRoIAlign", "DeformRoIPoolPack", "ModulatedDeformRoIPoolPack")),
}
"""Class of mmcv.ops that ``roi_layer.type`` names -> keys of the dict, None for any."""

POPPED = {
    "norm_cfg": ("requires_grad",),
    "upsample_cfg": ("scale_factor", "upsample_kernel"),
    "dcn": ("fallback_on_stride", "deformable_groups"),
    "loss_cls": ("bg_cls_weight",),
    "stages": ("sampling",),
}
"""Key of a typed dict -> what its owner takes out before it builds the rest."""

REGISTERED = {
    "init_cfg": "Constant",
    "act_cfg": "ReLU",
    "norm_cfg": "BN",
    "conv_cfg": "Conv2d",
    "upsample_cfg": "nearest",
}
"""Key of a dict whose ``type`` is always a registered layer -> one of them; beside them other keys
with the same ending name functions or choices of their owner."""

_RESIZED = ("size", "scale_factor", "mode", "align_corners", "recompute_scale_factor", "antialias")
"""Keywords of torch's ``interpolate``, to which necks hand ``upsample_cfg`` without type."""

_NAMED: dict[str, tuple[str, Mapping[str, tuple[str, ...] | None]]] = {
    "nms": ("NMS", NMS_TYPES),
    "roi_layer": ("RoI layer", ROI_LAYERS),
}


def keys_read(
    path: str, value: Mapping[str, Any], model: Model
) -> tuple[str, Keywords] | str | None:
    """Owner and keys of the dict at ``path``, the sentence about its ``type``, or None.

    None where it is not known what is read.
    """
    last = path.rpartition(".")[2]
    if last in _NAMED:
        what, types = _NAMED[last]
        name = str(value.get("type", last))
        if name not in types:
            hint = did_you_mean(name, types) or f"known: {', '.join(types)}"
            return f"no {what} is named '{name}'; {hint}"
        known = types[name]
        hints = _hints(known or ()) if last == "nms" else ()
        return name, Keywords(known or (), is_open=known is None, hints=hints)
    if last == "upsample_cfg" and "type" not in value and _below_neck(path):
        return "interpolate", Keywords(_RESIZED)
    top, *below = (part for part in path.split(".") if not part.isdigit())
    names = model.table.get(".".join(below)) if top == "model" else None
    if names is None:
        return None
    if model.foreign:  # their own keys are theirs; a near miss is a misspelt one all the same
        names = (*names, *(str(key) for key in value if not did_you_mean(str(key), names)))
    return path, Keywords(names, hints=_hints(names))


def _hints(names: Iterable[str]) -> tuple[tuple[str, Any], ...]:
    return tuple((name, NUMBERS[name]) for name in names if name in NUMBERS)


def _below_neck(path: str) -> bool:
    return [part for part in path.split(".") if not part.isdigit()][-2:-1] == ["neck"]


@dataclass(frozen=True)
class Model:
    """What the meaning of ``train_cfg`` and ``test_cfg`` of a model depends on."""

    parts: frozenset[str] = frozenset()
    """Keys of the config's ``model``."""
    foreign: bool = False
    """Whether ``custom_imports`` may bring classes that read further keys."""
    kind: str = ""
    """Type of the config's ``model``."""

    @classmethod
    def of(cls, cfg: Mapping[str, Any]) -> Model:
        """The model of a whole config."""
        model = cfg.get("model")
        parts = frozenset(map(str, model)) if isinstance(model, Mapping) else frozenset()
        kind = str(model.get("type")) if isinstance(model, Mapping) else ""
        return cls(parts, cfg.get("custom_imports") is not None, kind)

    @property
    def table(self) -> Mapping[str, tuple[str, ...]]:
        """Key below ``model`` -> keys that are read there; empty for other models."""
        if "roi_head" in self.parts:
            return TWO_STAGE
        if "decode_head" in self.parts:
            return OWN_SEGMENTOR if self.kind == "polaformer.Segmentor" else SEGMENTOR
        return ONE_STAGE if "bbox_head" in self.parts else {}
