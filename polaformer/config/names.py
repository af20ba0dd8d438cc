"""The names that ``type=`` may have, and the one that was most likely meant."""

from __future__ import annotations

from polaformer.config.signatures import registry_of
from polaformer.errors import nearest


def registered_names(kind: str, scope: str | None = None) -> list[str]:
    """Names that ``type=`` may have in ``kind``: ours with their prefix, others without.

    Others are mmengine's and those of the package that is the default ``scope``.
    """
    import mmengine.registry

    if kind == "ATTENTIONS":
        return own_names(kind)
    root = getattr(mmengine.registry, kind)
    scoped = registry_of(kind, scope) if scope not in (None, "polaformer") else root
    if scoped is not root:
        scoped.import_from_location()
    return own_names(kind) + sorted({*root.module_dict, *scoped.module_dict})


def own_names(kind: str) -> list[str]:
    """Names of this package in ``kind``, as a config writes them."""
    import polaformer.registry as ours

    own = getattr(ours, kind, None)
    if own is None:
        return []
    prefix = "" if kind == "ATTENTIONS" else "polaformer."
    return [f"{prefix}{name}" for name in own.names()]


def nearest_type(name: str, kind: str, scope: str | None = None) -> str | None:
    """The registered name most like ``name``, comparing without scope prefixes too."""
    names = registered_names(kind, scope)
    by_tail = {full.rpartition(".")[2]: full for full in reversed(names)}
    tail = name.rpartition(".")[2]
    if tail in by_tail:  # only the prefix is wrong
        return by_tail[tail]
    match = nearest(name, names)
    if match is None:
        near = nearest(tail, by_tail)
        match = by_tail[near] if near else None
    return match
