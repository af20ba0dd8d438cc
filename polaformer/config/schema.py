"""What may stand where in a config, for dicts that name no ``type`` themselves.

Keys are read off the functions that will receive them wherever there is one function to read.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from polaformer.config.signatures import Keywords, keywords_of, mismatch, resolve
from polaformer.errors import did_you_mean

OTHERS = (
    "runner_type",
    "custom_imports",
    "model_wrapper_cfg",
    "sync_bn",
    "find_unused_parameters",
    "compile",
    "activation_checkpointing",
    "efficient_conv_bn_eval",
    "tta_model",
    "tta_pipeline",
    "classes",
)
"""Top-level keys that are read from the whole config and are no arguments of mmengine's Runner."""

DATALOADERS = ("train_dataloader", "val_dataloader", "test_dataloader")
EVALUATORS = ("val_evaluator", "test_evaluator")
LOOPS = ("train_cfg", "val_cfg", "test_cfg")

CHILD_KINDS = {
    "dataset": "DATASETS",
    "sampler": "DATA_SAMPLERS",
    "batch_sampler": "DATA_SAMPLERS",
    "transforms": "TRANSFORMS",
    "pipeline": "TRANSFORMS",
    "vis_backends": "VISBACKENDS",
    "optimizer": "OPTIMIZERS",
    "attention": "ATTENTIONS",
    "init_cfg": "WEIGHT_INITIALIZERS",
    "metrics": "METRICS",
    "collate_fn": "FUNCTIONS",
    "worker_init_fn": "FUNCTIONS",
    "backbone": "MODELS",
    "neck": "MODELS",
    "head": "MODELS",
    "data_preprocessor": "MODELS",
}
"""Key of a nested dict -> registry of its ``type``; other keys inherit their parent's."""

MODEL_KINDS = dict.fromkeys(
    (
        "assigner",
        "sampler",
        "bbox_coder",
        "anchor_generator",
        "prior_generator",
        "iou_calculator",
        "match_costs",
    ),
    "TASK_UTILS",
)
"""As ``CHILD_KINDS``, inside of a model: there a sampler draws boxes, not images."""

TOP_KINDS = {
    "model": "MODELS",
    "tta_model": "MODELS",
    "data_preprocessor": "MODELS",
    "val_evaluator": "METRICS",
    "test_evaluator": "METRICS",
    "default_hooks": "HOOKS",
    "custom_hooks": "HOOKS",
    "param_scheduler": "PARAM_SCHEDULERS",
    "optim_wrapper": "OPTIM_WRAPPERS",
    "visualizer": "VISUALIZERS",
    "log_processor": "LOG_PROCESSORS",
    "tta_pipeline": "TRANSFORMS",
    **dict.fromkeys(LOOPS, "LOOPS"),
    **dict.fromkeys(DATALOADERS, "DATASETS"),
}

FREE_KEYS = frozenset({"metainfo", "backend_args", "file_client_args", "custom_keys", "meta"})
"""Dicts whose keys are the user's own names."""

_PARAMWISE = (
    "lr_mult",
    "decay_mult",
    "bias_lr_mult",
    "bias_decay_mult",
    "norm_decay_mult",
    "dwconv_decay_mult",
    "flat_decay_mult",
    "dcn_offset_lr_mult",
    "bypass_duplicate",
    "custom_keys",
)
"""Read key by key inside mmengine's DefaultOptimWrapperConstructor, so no signature holds them."""


@dataclass(frozen=True)
class Section:
    """The accepted keys of an untyped dict and what they belong to."""

    owner: str
    keywords: Keywords
    always: bool = False
    """True where a ``type`` key, if any, names no registered class."""


def expected_container(key: str) -> tuple[type, ...] | None:
    """What a top-level key must hold if it is not None, or None for single values."""
    if key in EVALUATORS or key == "param_scheduler":
        return Mapping, list, tuple
    if key in ("custom_hooks", "tta_pipeline"):
        return list, tuple
    if key in TOP_KINDS or key in ("env_cfg", "randomness", "auto_scale_lr", "custom_imports"):
        return (Mapping,)
    return None


def single_mismatch(key: str, value: Any) -> str | None:
    """What the single value at the top-level ``key`` should be, if it clearly is something else."""
    if key == "resume":
        return None if value in (True, False, "auto") else "True, False or 'auto'"
    if key == "load_from":
        fits = value is None or isinstance(value, str | Mapping)
        return None if fits else "a path, or a dict with checkpoint and options"
    if key == "work_dir":
        return None if value is None or isinstance(value, str) else "a path"
    if key == "compile":
        return None if value is None or isinstance(value, bool | Mapping) else "True, False, a dict"
    if key == "find_unused_parameters":
        return None if value is None or isinstance(value, bool) else "True or False"
    if key == "sync_bn":
        return None if value in (None, "torch", "mmcv") else "'torch', 'mmcv' or None"
    if key not in ("launcher", "log_level", "default_scope", "experiment_name"):
        return None
    from mmengine.runner import Runner

    return None if value is None else mismatch(value, keywords_of(Runner).hint(key))


@lru_cache(maxsize=1)
def top_level_keys() -> tuple[str, ...]:
    """Every key a config may have at its top."""
    from mmengine.runner import Runner

    runner = [n for n in inspect.signature(Runner.__init__).parameters if n not in ("self", "cfg")]
    return (*runner, *OTHERS)


_OF_LOAD_FROM = ("allow_shape_mismatch", "min_match", "prefer_ema", "prefix")


def meant_at_the_top(key: str) -> str:
    """What may be meant by a key that means nothing at the top of a config."""
    if key in _OF_LOAD_FROM:
        return f"write load_from=dict(checkpoint=…, {key}=…)"
    return did_you_mean(key, top_level_keys())


def section(path: str, cfg: Mapping[str, Any], runner: Any = None) -> Section | None:
    """The schema of the untyped dict at ``path``, or None where anything may stand.

    ``runner`` is the class that ``runner_type`` names: it decides the default loops.
    """
    if path in LOOPS:
        return _loop(path, cfg, runner)
    if path in DATALOADERS:
        return _dataloader()
    if path == "optim_wrapper":
        from mmengine.optim import OptimWrapper

        return _of("OptimWrapper", OptimWrapper, add=("constructor", "paramwise_cfg"))
    if path == "optim_wrapper.clip_grad":
        return _clip_grad(cfg)
    if path == "optim_wrapper.paramwise_cfg":
        return Section("paramwise_cfg", Keywords(_PARAMWISE, is_open=True), always=True)
    return _small(path)


def _clip_grad(cfg: Mapping[str, Any]) -> Section:
    from torch.nn.utils import clip_grad

    by_value = cfg.get("type", "norm") == "value"
    target = clip_grad.clip_grad_value_ if by_value else clip_grad.clip_grad_norm_
    found = _of("clip_grad", target, drop=("parameters",), add=("type",))
    return replace(found, always=True)


def _loop(path: str, cfg: Mapping[str, Any], runner: Any) -> Section:
    from mmengine.runner import EpochBasedTrainLoop, IterBasedTrainLoop, TestLoop, ValLoop

    if path == "train_cfg":
        target: Any = EpochBasedTrainLoop if cfg.get("by_epoch", True) else IterBasedTrainLoop
    else:
        target = ValLoop if path == "val_cfg" else TestLoop
    ours = {"EpochBasedTrainLoop": "EpochTrainLoop"}.get(target.__name__, target.__name__)
    if _is_ours(runner):
        target = resolve(f"polaformer.{ours}", "LOOPS", None) or target
    needs = ("by_epoch",) if path == "train_cfg" else ()
    return _of(target.__name__, target, drop=("runner", "dataloader", "evaluator"), needs=needs)


def _is_ours(runner: Any) -> bool:
    return getattr(runner, "__module__", "").startswith("polaformer.")


def default_hooks(runner: Any) -> dict[str, Any]:
    """Hooks that the runner adds by itself, name -> config; typeless entries change these."""
    module = inspect.getmodule(runner)
    return dict(getattr(module, "DEFAULT_HOOKS", {})) if _is_ours(runner) else {}


def _dataloader() -> Section:
    from torch.utils.data import DataLoader

    add = ("num_batch_per_epoch", "disable_subprocess_warning")
    found = _of("a dataloader", DataLoader, drop=("shuffle",), add=add, needs=("sampler",))
    return replace(found, always=True)


def _small(path: str) -> Section | None:
    if path == "load_from":
        weights = resolve("Pretrained", "WEIGHT_INITIALIZERS", None)
        return _of("load_from", weights, drop=("map_location",))
    if path == "env_cfg":
        names = ("cudnn_benchmark", "mp_cfg", "dist_cfg", "resource_limit")
        return Section("env_cfg", Keywords(names))
    if path == "env_cfg.mp_cfg":
        from mmengine.utils.dl_utils import set_multi_processing

        return _of("mp_cfg", set_multi_processing, drop=("distributed",))
    if path == "env_cfg.dist_cfg":
        from mmengine.dist import init_dist
        from torch.distributed import init_process_group

        keys = keywords_of(init_process_group)
        return _of("dist_cfg", init_dist, drop=("launcher",), add=keys.names)
    if path == "randomness":
        from mmengine.runner import Runner

        return _of("randomness", Runner.set_randomness, drop=("self",))
    if path == "auto_scale_lr":
        hints = (("enable", bool), ("base_batch_size", int))
        return Section("auto_scale_lr", Keywords(("enable", "base_batch_size"), hints=hints))
    if path == "log_processor":
        from mmengine.runner import LogProcessor

        return _of("LogProcessor", LogProcessor)
    if path == "custom_imports":
        return Section("custom_imports", Keywords(("imports", "allow_failed_imports")))
    return None


def _of(
    owner: str,
    target: Any,
    *,
    drop: tuple[str, ...] = (),
    add: tuple[str, ...] = (),
    needs: tuple[str, ...] = (),
) -> Section:
    """Keywords of ``target`` less those of ``drop``, plus ``add`` and the required ``needs``."""
    keys = keywords_of(target)
    names = tuple(dict.fromkeys(n for n in (*keys.names, *add, *needs) if n not in drop))
    required = tuple(n for n in (*keys.required, *needs) if n not in drop)
    return Section(owner, Keywords(names, required, hints=keys.hints))
