"""Parameter groups: which weights learn how fast and which decay."""

from __future__ import annotations

import fnmatch
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from mmengine.logging import print_log
from mmengine.optim import OptimWrapper
from mmengine.registry import OPTIMIZERS
from torch import nn
from torch.nn.modules.batchnorm import _NormBase

from polaformer.errors import UserError, did_you_mean
from polaformer.registry import OPTIM_WRAPPER_CONSTRUCTORS, OPTIM_WRAPPERS

PARAMWISE_KEYS = ("decay_rule", "layer_decay_rate", "custom_keys")
CUSTOM_KEYS = ("lr_mult", "decay_mult")
DECAY_RULES = ("published", "usual")
NORMS = (nn.LayerNorm, nn.GroupNorm, _NormBase)


@dataclass
class Group:
    """Parameters that share a learning rate and a weight decay."""

    lr: float
    weight_decay: float
    names: list[str] = field(default_factory=list)
    params: list[nn.Parameter] = field(default_factory=list)


@OPTIM_WRAPPER_CONSTRUCTORS.register_module()
class OptimConstructor:
    """Build the optimiser with layer-wise learning rates and a weight-decay rule.

    ``paramwise_cfg`` may hold:

    - ``decay_rule``: ``'published'`` (default) exempts 1-D tensors, every bias and what the
      backbone's ``no_weight_decay_keywords()`` names. So PolaFormer's ``power``, ``scale`` and
      ``positional_encoding`` and PVT's ``pos_embed`` are decayed, as in the released training
      code. ``'usual'`` exempts these too (``usual_no_decay_keywords()``) and every norm weight.
    - ``layer_decay_rate``: a parameter of backbone layer ``l`` of ``n`` learns with
      ``lr * rate ** (n - 1 - l)``; everything outside the backbone with the full rate.
    - ``custom_keys``: ``{pattern: dict(lr_mult=..., decay_mult=...)}``. A pattern with ``*``, ``?``
      or ``[`` must match a whole parameter name, a plain word a part of it; the longest match
      counts, and its ``decay_mult`` goes before the decay rule.

    Frozen parameters are left out. Groups come in the order of the first parameter of each, the
    same in every run. Raises UserError for an unknown key and for a pattern that matches nothing.
    """

    def __init__(self, optim_wrapper_cfg: dict, paramwise_cfg: dict | None = None) -> None:
        self.wrapper_cfg = {"type": "OptimWrapper", **optim_wrapper_cfg}
        if "optimizer" not in self.wrapper_cfg:
            raise UserError("optim_wrapper.optimizer is missing, e.g. dict(type='AdamW', lr=1e-3)")
        self.optimizer_cfg = dict(self.wrapper_cfg.pop("optimizer"))
        if "lr" not in self.optimizer_cfg:
            raise UserError("optim_wrapper.optimizer.lr is missing")
        options = dict(paramwise_cfg or {})
        _check_keys(options, PARAMWISE_KEYS, "optim_wrapper.paramwise_cfg")
        self.decay_rule = options.get("decay_rule", "published")
        self.layer_decay_rate = options.get("layer_decay_rate")
        self.custom_keys = dict(options.get("custom_keys") or {})
        self._check_values()

    def __call__(self, model: nn.Module) -> OptimWrapper:
        """Optimiser wrapper over the trainable parameters of ``model`` (bare or wrapped in DDP)."""
        groups = self.groups(model)
        print_log(_table(groups, self.decay_rule), logger="current")
        settings = [
            {"params": group.params, "lr": group.lr, "weight_decay": group.weight_decay}
            for group in groups
        ]
        optimizer = OPTIMIZERS.build(
            {"_scope_": "mmengine", **self.optimizer_cfg, "params": settings}
        )
        return OPTIM_WRAPPERS.build(self.wrapper_cfg, default_args={"optimizer": optimizer})

    def groups(self, model: nn.Module) -> list[Group]:
        """The parameter groups, before the optimiser exists."""
        model = getattr(model, "module", model)
        names = [name for name, _ in model.named_parameters()]
        self._check_patterns(names)
        base_lr, base_decay = self.optimizer_cfg["lr"], self.optimizer_cfg.get("weight_decay", 0.0)
        rules = _Rules(model, self.decay_rule, self.layer_decay_rate)
        groups: dict[tuple[float, float], Group] = {}
        for name, param in model.named_parameters():
            if not param.requires_grad:
                continue
            custom = self._custom(name)
            lr = base_lr * rules.lr_scale(name) * custom.get("lr_mult", 1.0)
            decay = base_decay * custom.get("decay_mult", 0.0 if rules.exempt(name, param) else 1.0)
            group = groups.setdefault((lr, decay), Group(lr, decay))
            group.names.append(name)
            group.params.append(param)
        if not groups:
            raise UserError("no parameter of the model is trainable: everything is frozen")
        return list(groups.values())

    def _custom(self, name: str) -> dict:
        matching = [pattern for pattern in self.custom_keys if _matches(pattern, name)]
        return self.custom_keys[max(matching, key=lambda p: (len(p), p))] if matching else {}

    def _check_values(self) -> None:
        if self.decay_rule not in DECAY_RULES:
            hint = f"{did_you_mean(self.decay_rule, DECAY_RULES)} ".lstrip()
            raise UserError(
                f"optim_wrapper.paramwise_cfg.decay_rule is '{self.decay_rule}'; {hint}"
                f"allowed: {', '.join(DECAY_RULES)}"
            )
        rate = self.layer_decay_rate
        if rate is not None and not 0.0 < rate <= 1.0:
            raise UserError(
                f"optim_wrapper.paramwise_cfg.layer_decay_rate is {rate}; allowed: 0 < value <= 1"
            )
        for pattern, options in self.custom_keys.items():
            _check_keys(
                options, CUSTOM_KEYS, f"optim_wrapper.paramwise_cfg.custom_keys['{pattern}']"
            )

    def _check_patterns(self, names: list[str]) -> None:
        parts = sorted({part for name in names for part in name.split(".")})
        for pattern in self.custom_keys:
            if not any(_matches(pattern, name) for name in names):
                near = did_you_mean(pattern, names) or did_you_mean(pattern.strip("*."), parts)
                hint = f"{near} ".lstrip()
                raise UserError(
                    f"optim_wrapper.paramwise_cfg.custom_keys: '{pattern}' matches none of the "
                    f"{len(names)} parameters; {hint}They are named like '{names[0]}'"
                )


class _Rules:
    """What the model itself says about its parameters."""

    def __init__(self, model: nn.Module, decay_rule: str, layer_decay_rate: float | None) -> None:
        self.rate = layer_decay_rate
        backbone = getattr(model, "backbone", None)
        self.depth = getattr(backbone, "get_layer_depth", None)
        if self.rate is not None and self.depth is None:
            raise UserError(
                "optim_wrapper.paramwise_cfg.layer_decay_rate needs a model whose backbone has "
                f"get_layer_depth; {type(model).__name__} has none"
            )
        self.keywords = set(_call(backbone, "no_weight_decay_keywords"))
        self.exempt_norms: set[str] = set()
        if decay_rule == "usual":
            self.keywords |= set(_call(backbone, "usual_no_decay_keywords"))
            self.exempt_norms = set(_norm_parameters(model))

    def lr_scale(self, name: str) -> float:
        if self.rate is None or self.depth is None or not name.startswith("backbone."):
            return 1.0
        layer, layers = self.depth(name, prefix="backbone.")
        return self.rate ** (layers - 1 - layer)

    def exempt(self, name: str, param: nn.Parameter) -> bool:
        if param.ndim <= 1 or name.endswith(".bias") or name in self.exempt_norms:
            return True
        return any(word == name or name.endswith(f".{word}") for word in self.keywords)


def _norm_parameters(model: nn.Module) -> Iterator[str]:
    for prefix, module in model.named_modules():
        if isinstance(module, NORMS):
            for name, _ in module.named_parameters(prefix=prefix, recurse=False):
                yield name


def _call(module: Any, method: str) -> set[str]:
    return getattr(module, method)() if hasattr(module, method) else set()


def _matches(pattern: str, name: str) -> bool:
    if any(letter in pattern for letter in "*?["):
        return fnmatch.fnmatchcase(name, pattern)
    return pattern in name


def _check_keys(options: dict, allowed: tuple[str, ...], where: str) -> None:
    for key in options:
        if key not in allowed:
            hint = f"{did_you_mean(key, allowed)} ".lstrip()
            raise UserError(f"{where}: '{key}' is unknown; {hint}allowed: {', '.join(allowed)}")


def _table(groups: list[Group], decay_rule: str) -> str:
    lines = [
        f"Parameter groups (weight-decay rule '{decay_rule}'):",
        f"{'group':>5} {'lr':>10} {'decay':>8} {'tensors':>8} {'values':>12}  first",
    ]
    for index, group in enumerate(groups):
        values = sum(param.numel() for param in group.params)
        lines.append(
            f"{index:>5} {group.lr:>10.3g} {group.weight_decay:>8.3g} {len(group.names):>8} "
            f"{values:>12,}  {group.names[0]}"
        )
    return "\n".join(lines)
