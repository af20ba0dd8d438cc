"""The registries: names in a config become classes here.

``ATTENTIONS`` is ours. The others are children of mmengine's registries under the scope
``polaformer``, so a config of any OpenMMLab task reaches ours as ``type='polaformer.PolaSwin'``.
A package is imported when a name is first looked up in it.
"""

from __future__ import annotations

from typing import Any

import mmengine.registry as root
from mmengine.registry import Registry as _Registry

from polaformer import compat
from polaformer.errors import UserError, did_you_mean

compat.apply()


class Registry(_Registry):
    """A registry that answers an unknown name with the nearest known one."""

    def names(self) -> list[str]:
        """All names registered here, after importing the packages that register them."""
        self.import_from_location()
        return sorted(self.module_dict)

    def build(self, cfg: Any, *args: Any, **kwargs: Any) -> Any:
        """Build ``cfg['type']``; raises UserError for an unknown name without a foreign scope."""
        kind = cfg.get("type") if isinstance(cfg, dict) else None
        if isinstance(kind, str) and self.get(kind) is None:
            names = self.names()
            hint = did_you_mean(kind.removeprefix("polaformer."), names)
            raise UserError(
                f"no {self.name} is named '{kind}'; {hint + ' ' if hint else ''}"
                f"registered here: {', '.join(names) or 'nothing'}"
            )
        return super().build(cfg, *args, **kwargs)


def _child(parent: _Registry, *packages: str) -> Registry:
    locations = [f"polaformer.{package}" for package in packages]
    return Registry(parent.name, parent=parent, scope="polaformer", locations=locations)


ATTENTIONS = Registry("attention", scope="polaformer", locations=["polaformer.attention"])

MODELS = _child(root.MODELS, "backbones", "models")
DATASETS = _child(root.DATASETS, "datasets")
TRANSFORMS = _child(root.TRANSFORMS, "datasets")
DATA_SAMPLERS = _child(root.DATA_SAMPLERS, "engine")
METRICS = _child(root.METRICS, "evaluation")
RUNNERS = _child(root.RUNNERS, "engine")
LOOPS = _child(root.LOOPS, "engine")
HOOKS = _child(root.HOOKS, "engine")
OPTIM_WRAPPERS = _child(root.OPTIM_WRAPPERS, "engine")
OPTIM_WRAPPER_CONSTRUCTORS = _child(root.OPTIM_WRAPPER_CONSTRUCTORS, "engine")
PARAM_SCHEDULERS = _child(root.PARAM_SCHEDULERS, "engine")
VISUALIZERS = _child(root.VISUALIZERS, "engine")
VISBACKENDS = _child(root.VISBACKENDS, "engine")
