"""Repairs of other libraries: the only folder that changes code that is not ours.

Every repair is one function that says what it mends, why, and when it can go; a test beside it
fails on the day it is no longer needed.
"""

from __future__ import annotations


def apply() -> None:
    """Apply the repairs that need no torch; calling it again changes nothing."""
    from polaformer.compat import mmengine

    mmengine.repair_config_merge()
    mmengine.repair_message_hub_state()


def apply_runtime() -> None:
    """Apply the repairs of mmengine's training code as well; imports torch."""
    from polaformer.compat import runtime

    apply()
    runtime.repair_autocast()
    runtime.repair_amp_optim_wrapper()
    runtime.repair_init_dist()
    runtime.silence_deprecations()
