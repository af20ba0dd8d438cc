"""What must agree between backbone, neck and heads of a segmentation model."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from polaformer.config.detection import fpn_strides
from polaformer.config.keys import Finding
from polaformer.config.segmentation_heads import heads_in
from polaformer.config.signatures import keywords_of, resolve
from polaformer.config.trial import missing_arguments

_SIDE = 128
"""Side of the image on which the sizes of the maps are found out."""


def is_segmentor(model: Any) -> bool:
    """Whether a model has the parts of mmseg's encoder-decoders."""
    return hasattr(model, "decode_head") and hasattr(model, "extract_feat")


def modules_of(part: Any) -> list[Any]:
    """The parts of a ModuleList, the part alone, or none."""
    if part is None:
        return []
    return list(part) if type(part).__name__ == "ModuleList" else [part]


# Maps and heads ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Maps:
    """The maps that heads are given."""

    channels: tuple[int, ...]
    strides: tuple[int, ...]
    whose: str
    """Who gives them, in words."""

    def __str__(self) -> str:
        return f"{self.whose} gives {len(self.channels)} maps of {list(self.channels)} channels"


def maps_of(backbone: Any, neck: Any) -> Maps | None:
    """The maps of a backbone (and neck) on the meta device, or None where they cannot be made.

    They are as declared, as by every backbone of ours, or else what comes out for an image.
    """
    name = type(backbone if neck is None else neck).__name__
    indices = getattr(backbone, "out_indices", None)
    if neck is None and isinstance(indices, Sequence):
        name += f" with out_indices={tuple(indices)}"
    found = _declared(backbone, neck) or _made(backbone, neck)
    return None if found is None else Maps(*found, name)


Declared = tuple[tuple[int, ...], tuple[int, ...]]
"""Channels and strides."""


def _declared(backbone: Any, neck: Any) -> Declared | None:
    if not isinstance(getattr(backbone, "channels", None), tuple):
        return None
    if neck is None:
        return backbone.channels, backbone.strides
    strides, width = fpn_strides(backbone, [neck]), getattr(neck, "out_channels", None)
    if strides is None or not isinstance(width, int):
        return None
    return (width,) * len(strides), tuple(strides)


def _made(backbone: Any, neck: Any) -> Declared | None:
    import torch

    channels = getattr(backbone, "in_channels", 3)
    channels = channels if isinstance(channels, int) else 3
    try:
        with torch.no_grad():
            maps = backbone(torch.empty(1, channels, _SIDE, _SIDE, device="meta"))
            maps = maps if neck is None else neck(maps)
            shapes = [tuple(one.shape) for one in maps]
    except Exception:  # what stops this image is told where the whole model takes one
        return None
    if not shapes or any(len(shape) != 4 for shape in shapes):
        return None
    return tuple(shape[1] for shape in shapes), tuple(round(_SIDE / s[-1]) for s in shapes)


def head_mismatches(
    model_cfg: Mapping[str, Any], maps: Maps, scope: str | None
) -> Iterator[Finding]:
    """Heads read maps that there are, of the channels and strides that these have."""
    for key, head in heads_in(model_cfg):
        target = resolve(head.get("type"), "MODELS", scope)
        takes = keywords_of(target).names if target is not None else ()
        if "in_channels" not in head and "in_channels" not in missing_arguments(head, scope):
            continue
        if {"in_channels", "in_index"} <= set(takes):
            yield from _head(key, head, maps)


def _head(key: str, head: Mapping[str, Any], maps: Maps) -> Iterator[Finding]:
    number, given = len(maps.channels), head.get("in_channels")
    chosen = head.get("in_index", -1)
    if isinstance(given, list | tuple) and isinstance(chosen, int):
        told = f"{chosen} is one map" if "in_index" in head else "missing"
        text = f"{told}, but in_channels has {len(given)}; write in_index={list(range(number))}"
        yield Finding(f"{key}.in_index", text)
        return
    indices = list(chosen) if isinstance(chosen, list | tuple) else [chosen]
    if not all(isinstance(index, int) for index in indices):
        return
    beyond = [index for index in indices if not -number <= index < number]
    if beyond:
        shown = ", ".join(map(str, beyond))
        text = f"there is no map {shown}: {maps}; allowed: 0 to {number - 1}"
        yield Finding(f"{key}.in_index", text)
        return
    channels = [maps.channels[index] for index in indices]
    wanted: Any = channels if isinstance(chosen, list | tuple) else channels[0]
    if _plain(given) != wanted:
        read = f"of maps {indices}" if isinstance(wanted, list) else f"of map {chosen}"
        told = "missing" if given is None else _plain(given)
        text = f"{told}, but {maps}; write in_channels={wanted}, those {read}"
        yield Finding(f"{key}.in_channels", text)
    strides = [maps.strides[index] for index in indices]
    named = head.get("feature_strides")
    if named is not None and _plain(named) != strides:
        text = f"{_plain(named)}, but the maps have strides {strides}; write "
        yield Finding(f"{key}.feature_strides", f"{text}feature_strides={strides}")


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, list | tuple) else value


def neck_mismatch(backbone: Any, neck_cfg: Mapping[str, Any]) -> Iterator[Finding]:
    """A neck reads as many maps as the backbone gives, of their channels."""
    maps = maps_of(backbone, None)
    given = _plain(neck_cfg.get("in_channels"))
    if maps is None or not isinstance(given, list) or given == list(maps.channels):
        return
    text = f"{given}, but {maps}; write in_channels={list(maps.channels)}"
    yield Finding("model.neck.in_channels", text)


def leaves_maps(model_cfg: Mapping[str, Any]) -> bool:
    """Whether the heads' ``in_index``, taken together, leave out a map that there may be."""
    read: set[Any] = set()
    for _, head in heads_in(model_cfg):
        chosen = head.get("in_index", -1)
        read.update(chosen if isinstance(chosen, list | tuple) else [chosen])
    indices = (model_cfg.get("backbone") or {}).get("out_indices")
    number = len(indices) if isinstance(indices, list | tuple) else 4
    return any(i not in read and i - number not in read for i in range(number))
