"""The data sets of a config, also those inside of others, and the transforms of their pipelines."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

from polaformer.config import schema
from polaformer.config.input_size import pair
from polaformer.config.keys import Finding

_PACKED = {
    "CocoDataset": ("PackDetInputs", "its boxes"),
    "SegmentationDataset": ("PackSegInputs", "its mask"),
}
"""Data set -> the transform that makes what its models read, and what else that holds."""

_MIXING = "MultiImageMixDataset"
"""mmdet's wrapper whose own pipeline goes on where those inside of it end."""


def data_sets_in(cfg: Mapping[str, Any]) -> Iterator[tuple[str, str, Mapping[str, Any]]]:
    """Loader, key and config of every data set, the outer ones first."""
    for loader in schema.DATALOADERS:
        node = cfg.get(loader)
        if isinstance(node, Mapping):
            for key, dataset in _inside(f"{loader}.dataset", node.get("dataset")):
                yield loader, key, dataset


def _inside(key: str, dataset: Any) -> Iterator[tuple[str, Mapping[str, Any]]]:
    if isinstance(dataset, list | tuple):
        for index, one in enumerate(dataset):
            yield from _inside(f"{key}.{index}", one)
    if isinstance(dataset, Mapping):
        yield key, dataset
        for name in ("dataset", "datasets"):
            yield from _inside(f"{key}.{name}", dataset.get(name))


def entries(key: str, node: Any) -> Iterator[tuple[str, Mapping]]:
    """Every dict in a dict or a list of dicts."""
    pairs = node.items() if isinstance(node, Mapping) else enumerate(node or ())
    for name, value in pairs:
        if isinstance(value, Mapping):
            yield f"{key}.{name}", value


def typed(key: str, node: Any) -> Iterator[tuple[str, Mapping]]:
    """A dict with type, or those in a list."""
    if isinstance(node, Mapping) and "type" in node:
        yield key, node
    elif isinstance(node, list | tuple):
        yield from entries(key, node)


def kind_of(step: Any) -> str:
    """The type of a transform or data set without its scope."""
    name = step.get("type") if isinstance(step, Mapping) else None
    return name.rpartition(".")[2] if isinstance(name, str) else getattr(name, "__name__", "")


def unpacked(cfg: Mapping[str, Any], wrong: Collection[str]) -> Iterator[Finding]:
    """A model reads what its kind of packing makes, so every pipeline of its data ends with that.

    A pipeline with an unknown type, of which ``wrong`` has the key, may have it misspelt.
    """
    if cfg.get("custom_imports") is not None:  # transforms of the user's own may pack as well
        return
    mixed: list[str] = []
    for _, key, dataset in data_sets_in(cfg):
        if kind_of(dataset) == _MIXING:
            mixed.append(f"{key}.")
        if kind_of(dataset) not in _PACKED or key.startswith(tuple(mixed)):
            continue
        if any(k.startswith(f"{key}.pipeline.") and k.endswith(".type") for k in wrong):
            continue
        if not any(name.startswith("Pack") for name in _kinds(dataset.get("pipeline"))):
            where = f"{key}.pipeline" if dataset.get("pipeline") else key
            packing, other = _PACKED[kind_of(dataset)]
            text = f"no step packs the image and {other}; end it with dict(type='{packing}')"
            yield Finding(where, text)


def _kinds(node: Any) -> Iterator[str]:
    """Types of the transforms of a pipeline, at any depth."""
    if isinstance(node, list | tuple):
        for one in node:
            yield from _kinds(one)
    elif isinstance(node, Mapping):
        yield kind_of(node)
        for child in node.values():  # each branch of a transform may be called as it likes
            yield from _kinds(child)


def steps_of(key: str, node: Any) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Key and config of the transforms of a pipeline in their order, branches one by one."""
    listed = isinstance(node, list | tuple)
    for name, step in enumerate(node) if listed else ():
        at = f"{key}.{name}"
        if isinstance(step, Mapping):
            yield at, step
            yield from steps_of(f"{at}.transforms", step.get("transforms"))
        else:
            yield from steps_of(at, step)


def crops_of(cfg: Mapping[str, Any], loader: str) -> list[tuple[str, tuple[int, int]]]:
    """Key and size of every ``RandomCrop`` of a loader's data sets."""
    found = []
    for owner, key, dataset in data_sets_in(cfg):
        if owner != loader:
            continue
        for at, step in steps_of(f"{key}.pipeline", dataset.get("pipeline")):
            size = pair(step.get("crop_size")) if kind_of(step) == "RandomCrop" else None
            if size is not None:
                found.append((f"{at}.crop_size", size))
    return found
