"""Training and evaluation: launcher, runner, loops, hooks, optimisation."""

from polaformer.engine.optim_constructor import OptimConstructor
from polaformer.engine.warmup_cosine import WarmupCosineLR

__all__ = ["OptimConstructor", "WarmupCosineLR"]
