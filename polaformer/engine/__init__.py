"""Training and evaluation: runner, loops, hooks, trackers. Importing it registers them all."""

from polaformer.engine import (  # noqa: F401
    data,
    hooks,
    iter_loop,
    loops,
    optim_constructor,
    runner,
    trackers,
    warmup_cosine,
    warmup_poly,
    warmup_step,
    weights,
)
