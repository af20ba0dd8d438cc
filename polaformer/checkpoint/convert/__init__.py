"""Published weight formats, one file each, and the choice among them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Set
from typing import Any

from polaformer.checkpoint.convert import pola_pvt, pola_swin, timm_swin
from polaformer.checkpoint.convert.base import Converter
from polaformer.checkpoint.errors import CheckpointError
from polaformer.checkpoint.state import canonical, leading_owners
from polaformer.errors import did_you_mean

CONVERTERS: dict[str, Converter] = {
    module.CONVERTER.name: module.CONVERTER for module in (pola_swin, timm_swin, pola_pvt)
}


def detect(state: Mapping[str, Any]) -> Converter | None:
    """The published format that the names of ``state`` belong to; None if they belong to none.

    Wrapper segments and owners ('module.', 'backbone.') in front of the names do not matter.
    """
    return _first(state, lambda converter: converter.is_official)


def detect_ours(state: Mapping[str, Any]) -> Converter | None:
    """The published format that a state with our names can be converted to."""
    return _first(state, lambda converter: converter.is_ours)


def _first(
    state: Mapping[str, Any], test: Callable[[Converter], Callable[[Set[str]], bool]]
) -> Converter | None:
    names = [canonical(key) for key in state]
    for prefix in leading_owners(names):
        below = {name.removeprefix(prefix) for name in names if name.startswith(prefix)}
        for converter in CONVERTERS.values():
            if test(converter)(below):
                return converter
    return None


def converter_for(choice: Converter | str | None, state: Mapping[str, Any]) -> Converter | None:
    """The converter that ``choice`` means: None detects, 'none' is none, a name is looked up."""
    if choice is None:
        return detect(state)
    if isinstance(choice, Converter):
        return choice
    if choice == "none":
        return None
    if choice not in CONVERTERS:
        raise CheckpointError(
            f"converter='{choice}'; allowed: none, {', '.join(CONVERTERS)}. "
            f"{did_you_mean(choice, CONVERTERS)}".rstrip()
        )
    return CONVERTERS[choice]


__all__ = ["CONVERTERS", "Converter", "converter_for", "detect", "detect_ours"]
