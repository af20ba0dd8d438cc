"""What the transforms of a pipeline need of the data, read from their configs or objects."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from polaformer.datasets.integrity import Size


def mask_use(pipeline: Any) -> str:
    """What a pipeline does with masks: 'none', 'any', or 'polygons' if it takes nothing else.

    An empty pipeline shows the items themselves: 'optional'.
    """
    steps = list(steps_of(pipeline))
    if not steps:
        return "optional"
    loading = [step for step in steps if _value(step, "with_mask", False)]
    if not loading:
        return "none"
    return "any" if all(_value(step, "poly2mask", True) for step in loading) else "polygons"


def shortest_edge(pipeline: Any) -> float | None:
    """The smallest longer edge that pictures are resized to with their ratio kept; None if none.

    Where a step draws a factor of the scale (``ratio_range``), the smallest counts.
    """
    edges = [
        max(scale) * min(_value(step, "ratio_range", None) or (1.0,))
        for step in steps_of(pipeline)
        if _value(step, "keep_ratio", False)
        for scale in _pairs([_value(step, "scale", None), _value(step, "scales", None)])
    ]
    return min(edges, default=None)


def vanishing(size: Size, edge: float) -> str | None:
    """Why a picture cannot be resized to ``edge`` pixels along its longer side, or None."""
    long, short = max(size), min(size)
    if int(short * edge / long + 0.5) >= 1:  # rounded as mmcv does
        return None
    return (
        f"{size[0]} x {size[1]} pixels are too thin: the pipeline makes the longer side {edge:g} "
        "pixels, and nothing is left of the shorter one"
    )


def _pairs(scale: Any) -> Iterator[tuple[float, float]]:
    """Every (width, height) in a scale or a list of scales; a number stands for both."""
    if isinstance(scale, (int, float)):
        yield scale, scale
    elif isinstance(scale, (list, tuple)):
        if len(scale) == 2 and all(isinstance(side, (int, float)) for side in scale):
            yield scale[0], scale[1]
        else:
            for one in scale:
                yield from _pairs(one)


def steps_of(pipeline: Any) -> Iterator[Any]:
    """Every transform in a pipeline, also those inside of others, as config or object."""
    if isinstance(pipeline, (list, tuple)):
        for step in pipeline:
            yield from steps_of(step)
    elif isinstance(pipeline, Mapping):
        yield pipeline
        for value in pipeline.values():
            if isinstance(value, (list, tuple, Mapping)):
                yield from steps_of(value)
    elif callable(pipeline):
        yield pipeline
        yield from steps_of(list(getattr(pipeline, "transforms", ())))


def _value(step: Any, name: str, default: Any) -> Any:
    return step.get(name, default) if isinstance(step, Mapping) else getattr(step, name, default)
