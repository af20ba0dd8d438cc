"""What must agree between the parts of a built detector: widths, strides, and what is counted."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from polaformer.config.keys import Finding
from polaformer.config.signatures import keywords_of

if TYPE_CHECKING:
    from torch import Tensor, nn

_GENERATORS = ("anchor_generator", "prior_generator", "point_generator")
COUNTED = "backbone, neck and dense head; what the RoI heads add depends on the proposals"
COUNTED_ONE_STAGE = "backbone, neck and dense head"


def is_detector(model: Any) -> bool:
    """Whether a model has the parts of mmdet's one- and two-stage detectors."""
    return dense_head(model) is not None and hasattr(model, "extract_feat")


def dense_head(model: Any) -> Any:
    """The head that reads every position of the maps, or None."""
    for name in ("rpn_head", "bbox_head"):
        if getattr(model, name, None) is not None:
            return getattr(model, name)
    return None


def counted_parts(model: Any) -> str:
    """What a forward pass of ``dense_parts`` covers, in words."""
    return COUNTED if getattr(model, "roi_head", None) is not None else COUNTED_ONE_STAGE


def dense_parts(model: Any) -> nn.Module:
    """The part of a detector whose work depends on the image size alone.

    It holds the whole model, so that all parameters are counted; images [B, C, H, W] pass through
    backbone, neck and dense head.
    """
    from torch import nn

    class DenseParts(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.detector = model
            self.backbone = model.backbone
            self.head = dense_head(model)

        def forward(self, images: Tensor) -> Any:
            return self.head(self.detector.extract_feat(images))

    return DenseParts()


def mismatches(model: Any, cfg: Mapping[str, Any]) -> Iterator[Finding]:
    """Where the parts of a detector do not fit together, read off the built parts.

    Each finding stands at the line to change and tells what to write there. ``cfg`` is the
    config's ``model``.
    """
    backbone, necks = getattr(model, "backbone", None), necks_of(model)
    if not isinstance(getattr(backbone, "channels", None), tuple) or not necks:
        return
    yield from _neck(backbone, necks[0], cfg)
    for index in range(1, len(necks)):
        before = _out_width(necks[:index])
        yield from _width(f"model.neck.{index}", necks[index], before, "the neck before it gives")
    number = "model.neck.0.num_outs" if _listed(cfg, "neck") else "model.neck.num_outs"
    width, strides = _out_width(necks), fpn_strides(backbone, necks)
    for name in ("rpn_head", "bbox_head"):
        head = getattr(model, name, None)
        if head is not None:
            yield from _width(f"model.{name}", head, width, "the maps of the neck have")
            yield from _anchors(f"model.{name}", head, strides, cfg.get(name), number)
    roi_head = getattr(model, "roi_head", None)
    if roi_head is not None:
        for kind in ("bbox", "mask"):
            yield from _region_heads(roi_head, kind, cfg, width, strides)


def necks_of(model: Any) -> list[Any]:
    """The neck of a detector, or several in a row where the config has a list."""
    from torch import nn

    neck = getattr(model, "neck", None)
    if neck is None:
        return []
    return list(neck) if isinstance(neck, nn.Sequential) else [neck]


def _out_width(necks: Sequence[Any]) -> Any:
    """Channels of the maps that the last neck gives; some keep those they are given."""
    widths = [getattr(neck, "out_channels", None) for neck in necks]
    return next((width for width in reversed(widths) if isinstance(width, int)), None)


def _neck(backbone: Any, neck: Any, cfg: Mapping[str, Any]) -> Iterator[Finding]:
    given, wanted = getattr(neck, "in_channels", None), list(backbone.channels)
    if not isinstance(given, list | tuple) or list(given) == wanted:
        return
    key = "model.neck.0.in_channels" if _listed(cfg, "neck") else "model.neck.in_channels"
    name, maps = type(backbone).__name__, tuple(backbone.out_indices)
    yield Finding(
        key,
        f"{list(given)}, but {name} with out_indices={maps} gives {len(wanted)} "
        f"map{'s' * (len(wanted) > 1)} of {wanted} channels; write in_channels={wanted}",
    )


def fpn_strides(backbone: Any, necks: Sequence[Any]) -> list[int] | None:
    """Strides of the maps of an FPN, or None for necks of another make."""
    neck, *later = necks
    names = ("start_level", "backbone_end_level", "num_outs")
    if any(hasattr(other, "num_outs") for other in later) or not all(
        isinstance(getattr(neck, name, None), int) for name in names
    ):
        return None
    used = list(backbone.strides)[neck.start_level : neck.backbone_end_level]
    while used and len(used) < neck.num_outs:
        used.append(2 * used[-1])
    return used or None


def _width(key: str, head: Any, width: Any, whose: str) -> Iterator[Finding]:
    given = getattr(head, "in_channels", None)
    if isinstance(given, int) and isinstance(width, int) and given != width:
        text = f"{given}, but {whose} {width} channels; write in_channels={width}"
        yield Finding(f"{key}.in_channels", text)


def _anchors(
    key: str, head: Any, strides: list[int] | None, cfg: Any, because: str
) -> Iterator[Finding]:
    generator = getattr(head, "prior_generator", None)
    given = [_single(stride) for stride in getattr(generator, "strides", ())]
    if strides is None or not given or given == strides:
        return
    text = f"{given}, but the neck gives maps of strides {strides}; write strides={strides}"
    made = [name for name in _GENERATORS if isinstance(cfg, Mapping) and name in cfg]
    kind: Any = type(head)
    takes = keywords_of(kind).names
    made = made or [name for name in _GENERATORS if name in takes and "strides" not in takes]
    # A head without anchors takes the strides itself.
    yield Finding(".".join([key, *made[:1], "strides"]), text, because=because)


def _single(stride: Any) -> Any:
    """The stride of an anchor generator, which keeps one for each direction."""
    both = isinstance(stride, Sequence) and len(set(stride)) == 1
    return stride[0] if both else stride


def _region_heads(
    roi_head: Any, kind: str, cfg: Mapping[str, Any], width: Any, strides: list[int] | None
) -> Iterator[Finding]:
    """Extractors and heads of boxes or masks; a cascade has a list of each."""
    extractors = _modules(getattr(roi_head, f"{kind}_roi_extractor", None))
    below = cfg.get("roi_head")
    below = below if isinstance(below, Mapping) else {}
    for index, extractor in enumerate(extractors):
        name = f"{kind}_roi_extractor"
        key = f"model.roi_head.{name}" + (f".{index}" if _listed(below, name) else "")
        if index and not _listed(below, name):  # one config stands for every stage
            break
        yield from _extractor(key, extractor, width, strides)
    for index, head in enumerate(_modules(getattr(roi_head, f"{kind}_head", None))):
        name = f"{kind}_head"
        if index and not _listed(below, name):
            break
        key = f"model.roi_head.{name}" + (f".{index}" if _listed(below, name) else "")
        source = extractors[min(index, len(extractors) - 1)] if extractors else None
        given = getattr(source, "out_channels", None)
        yield from _width(key, head, given, f"{kind}_roi_extractor gives")
        if kind == "bbox":
            yield from _window(key, head, source)


def _extractor(
    key: str, extractor: Any, width: Any, strides: list[int] | None
) -> Iterator[Finding]:
    given = getattr(extractor, "out_channels", None)
    if isinstance(given, int) and isinstance(width, int) and given != width:
        text = f"{given}, but the maps of the neck have {width}; write out_channels={width}"
        yield Finding(f"{key}.out_channels", text)
    levels = list(getattr(extractor, "featmap_strides", ()))
    if strides is None or not levels or levels == strides[: len(levels)]:
        return
    wanted = strides[: min(len(levels), len(strides))]
    text = f"{levels}, but the neck gives maps of strides {strides}; write featmap_strides={wanted}"
    yield Finding(f"{key}.featmap_strides", text)


def _window(key: str, head: Any, extractor: Any) -> Iterator[Finding]:
    """A box head with fully connected layers reads one size of window."""
    given = getattr(head, "roi_feat_size", None)
    layers = getattr(extractor, "roi_layers", None) or ()
    first = next(iter(layers), None)
    wanted = getattr(first, "output_size", None)
    if given is None or wanted is None:
        return
    if _side(given) != _side(wanted):
        size = _side(wanted)
        text = f"{_side(given)}, but bbox_roi_extractor cuts out {size}; write roi_feat_size={size}"
        yield Finding(f"{key}.roi_feat_size", text)


def _side(size: Any) -> int | tuple[int, ...]:
    """The side of a square, or both sides."""
    if isinstance(size, int):
        return size
    return size[0] if len(set(size)) == 1 else tuple(size)


def _modules(part: Any) -> list[Any]:
    """The parts of a ModuleList, or the part alone."""
    if part is None:
        return []
    return list(part) if type(part).__name__ == "ModuleList" else [part]


def _listed(cfg: Mapping[str, Any], name: str) -> bool:
    return isinstance(cfg.get(name), list | tuple)


def unread_maps(model: Any, cfg: Mapping[str, Any]) -> Finding | None:
    """Maps of the backbone below the neck's ``start_level``: their norms get no gradient."""
    backbone: Any = getattr(model, "backbone", None)
    neck = next(iter(necks_of(model)), None)
    start, used = getattr(neck, "start_level", 0), getattr(backbone, "out_indices", ())
    if not isinstance(start, int) or start < 1 or not len(getattr(backbone, "norms", ())):
        return None
    if cfg.get("find_unused_parameters"):
        return None
    kept = tuple(used)[start:]
    listed = _listed(cfg["model"], "neck")
    return Finding(
        "model.neck.0.start_level" if listed else "model.neck.start_level",
        f"{start} leaves the first of the backbone's maps unread, and its norm without gradient: "
        f"several processes refuse that. Write out_indices={kept} in the backbone, start_level=0 "
        f"and in_channels={list(backbone.channels[start:])} in the neck",
    )
