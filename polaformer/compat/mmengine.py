"""Repairs of mmengine 0.10.7 that need neither torch nor its runner.

``ORIGINALS`` keeps what was replaced, so that a test can ask whether a repair is still needed.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from mmengine.config import Config
from mmengine.logging import HistoryBuffer, MessageHub

ORIGINALS: dict[str, Any] = {}

KEPT_VALUES = 1000
"""How many of the newest values of each scalar a checkpoint carries."""


def replace(owner: Any, name: str, new: Any) -> None:
    """Put ``new`` in the place of ``owner.name`` and remember the original under that name."""
    key = f"{getattr(owner, '__name__', owner)}.{name}"
    ORIGINALS.setdefault(key, vars(owner)[name])
    setattr(owner, name, new)


def repair_config_merge() -> None:
    """Let a dict in a child config take the place of None or a plain value in its base.

    mmengine raises TypeError for a base ``clip_grad=None`` and a child
    ``clip_grad=dict(max_norm=1)``, so a base cannot switch off what a recipe switches on.
    Can go when ``Config._merge_a_into_b`` accepts a dict over None.
    """
    if "Config._merge_a_into_b" in ORIGINALS:
        return
    original = Config._merge_a_into_b

    def merge(a: dict, b: Any, allow_list_keys: bool = False) -> Any:
        """Merge ``a`` into a copy of ``b``; a dict in ``a`` replaces what is no container in ``b``.

        The original calls itself by this public name, so every level passes through here.
        """
        if isinstance(b, dict):
            plain = [
                key
                for key, value in a.items()
                if isinstance(value, dict) and key in b and not isinstance(b[key], (dict, list))
            ]
            if plain:
                b = b.copy()
                for key in plain:
                    del b[key]
        return original(a, b, allow_list_keys)

    replace(Config, "_merge_a_into_b", staticmethod(merge))


def repair_message_hub_state() -> None:
    """Make the message hub's state plain containers, which the safe loader of torch reads.

    mmengine stores ``HistoryBuffer`` objects and numpy scalars, and ``torch.load`` with
    ``weights_only=True`` refuses both, so a run could not be resumed from its own checkpoint. The
    log history is cut to the newest ``KEPT_VALUES`` per scalar; a long run would otherwise carry
    all of it in every checkpoint. Can go when mmengine's own state passes the safe loader.
    """
    if "MessageHub.state_dict" in ORIGINALS:
        return
    state_dict, load_state_dict = MessageHub.state_dict, MessageHub.load_state_dict

    def plain_state_dict(self: MessageHub) -> dict:
        """Log scalars, runtime information and resumed keys as plain containers."""
        state = state_dict(self)
        scalars = {key: _from_buffer(value) for key, value in state["log_scalars"].items()}
        info: dict[str, Any] = {}
        for key, value in state["runtime_info"].items():
            converted = plain(value)
            if converted is not OPAQUE:
                info[key] = converted
        resumed = dict(state["resumed_keys"])
        return {"log_scalars": scalars, "runtime_info": info, "resumed_keys": resumed}

    def load_plain_state_dict(self: MessageHub, state: Any) -> None:
        """Load a plain state, or one that mmengine itself has written."""
        if isinstance(state, dict) and "log_scalars" in state:
            state = dict(state)
            scalars = state["log_scalars"].items()
            state["log_scalars"] = {key: _to_buffer(value) for key, value in scalars}
            known = {*state["log_scalars"], *state["runtime_info"]}
            resumed = state["resumed_keys"].items()
            state["resumed_keys"] = {key: value for key, value in resumed if key in known}
        load_state_dict(self, state)

    replace(MessageHub, "state_dict", plain_state_dict)
    replace(MessageHub, "load_state_dict", load_plain_state_dict)


OPAQUE = object()
"""What ``plain`` returns for an object that has no plain form."""


def plain(value: Any) -> Any:
    """``value`` as numbers, strings, tensors and plain containers, or ``OPAQUE``.

    numpy scalars become Python numbers and arrays become lists; an entry of a container that
    has no plain form is left out.
    """
    if isinstance(value, np.generic):
        return value.item()
    for kind in (bool, int, float, str, bytes):
        if isinstance(value, kind):
            return kind(value)  # type: ignore[arg-type,call-overload]
    if value is None:
        return None
    if isinstance(value, np.ndarray):
        return value.tolist() if value.dtype != object else OPAQUE
    if isinstance(value, dict):
        items = ((plain(key), plain(entry)) for key, entry in value.items())
        return {key: entry for key, entry in items if OPAQUE not in (key, entry)}
    if isinstance(value, (list, tuple)):
        entries = [entry for entry in map(plain, value) if entry is not OPAQUE]
        return tuple(entries) if isinstance(value, tuple) else entries
    if type(value).__module__ == "torch" and type(value).__name__ in ("Tensor", "Parameter"):
        return value.detach()
    return OPAQUE


def _from_buffer(buffer: HistoryBuffer) -> dict[str, Any]:
    values, counts = buffer.data
    return {
        "values": values[-KEPT_VALUES:].tolist(),
        "counts": counts[-KEPT_VALUES:].tolist(),
        "max_length": int(buffer.max_length),
    }


def _to_buffer(value: Any) -> Any:
    if isinstance(value, dict) and {"values", "counts", "max_length"} <= set(value):
        return HistoryBuffer(value["values"], value["counts"], value["max_length"])
    return value
