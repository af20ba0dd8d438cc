"""Training and evaluation: runner, loops, hooks, trackers. Importing it registers them all."""

from polaformer.engine import (  # noqa: F401
    data,
    hooks,
    loops,
    optim_constructor,
    runner,
    trackers,
    warmup_cosine,
    warmup_step,
    weights,
)
