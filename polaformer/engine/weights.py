"""Starting weights: ``load_from`` and ``init_cfg=dict(type='Pretrained', checkpoint=…)``.

Both read through ``checkpoint.io`` and say in the log what was loaded. The name 'Pretrained' is
taken over in mmengine's registry of initialisers, so every ``BaseModule`` uses this one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from mmengine.logging import MMLogger
from mmengine.model.weight_init import PretrainedInit as _PretrainedInit
from mmengine.registry import WEIGHT_INITIALIZERS

from polaformer.checkpoint.io import LoadReport, load_weights
from polaformer.errors import UserError

OPTIONS = ("checkpoint", "min_match", "allow_shape_mismatch", "prefer_ema", "prefix")


@WEIGHT_INITIALIZERS.register_module(name="Pretrained", force=True)
class PretrainedInit(_PretrainedInit):
    """Initialise a module from a weight file; options as in ``checkpoint.io.load_weights``."""

    def __init__(
        self,
        checkpoint: str,
        prefix: str | None = None,
        map_location: str = "cpu",
        min_match: float = 0.9,
        allow_shape_mismatch: Sequence[str] = (),
        prefer_ema: bool = False,
    ) -> None:
        super().__init__(checkpoint, prefix=prefix, map_location=map_location)
        self.min_match = min_match
        self.allow_shape_mismatch = tuple(allow_shape_mismatch)
        self.prefer_ema = prefer_ema

    def __call__(self, module: torch.nn.Module) -> None:
        """Load the weights into ``module``; CheckpointError if they do not fit."""
        load_weights(
            module,
            self.checkpoint,
            prefix=self.prefix,
            min_match=self.min_match,
            allow_shape_mismatch=self.allow_shape_mismatch,
            prefer_ema=self.prefer_ema,
            logger=MMLogger.get_current_instance(),
        )


def take_pretrained(model: torch.nn.Module) -> list[tuple[torch.nn.Module, dict[str, Any]]]:
    """Remove every 'Pretrained' from the ``init_cfg`` of the model's modules and return them.

    A module of a model may fill itself when it is built and have nothing left to do in
    ``init_weights``; its weight file is read here all the same. Outer modules come first.
    """
    found: list[tuple[torch.nn.Module, dict[str, Any]]] = []
    module: Any
    for module in model.modules():
        configs = getattr(module, "init_cfg", None) or []
        configs = [configs] if isinstance(configs, dict) else list(configs)
        files = [config for config in configs if config.get("type") == "Pretrained"]
        if files:
            found += [(module, config) for config in files]
            module.init_cfg = [config for config in configs if config not in files]
    return found


def load_pretrained(found: Sequence[tuple[torch.nn.Module, dict[str, Any]]]) -> None:
    """Load what ``take_pretrained`` has found."""
    for module, config in found:
        PretrainedInit(**{key: value for key, value in config.items() if key != "type"})(module)


def load_start(
    model: torch.nn.Module, source: str | dict[str, Any], min_match: float = 0.9
) -> LoadReport:
    """Load ``load_from`` into the model: a path, or a dict with ``checkpoint`` and options."""
    options: dict[str, Any] = dict(source) if isinstance(source, dict) else {"checkpoint": source}
    unknown = [key for key in options if key not in OPTIONS]
    if unknown or "checkpoint" not in options:
        raise UserError(
            f"load_from is a path or a dict with {', '.join(OPTIONS)}; got {dict(options)}"
        )
    path = options.pop("checkpoint")
    options.setdefault("min_match", min_match)
    return load_weights(model, path, logger=MMLogger.get_current_instance(), **options)
