"""The lines of a config that name a user's own images and label images."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from polaformer.datasets.prepare.mask_look import Where

_SPLITS = (("training", "validation"), ("Training", "Validation"), ("train", "val"))
_WEIGHTS_UP_TO = 30


def config_lines(
    splits: Sequence[Where], classes: Sequence[str] | str, options: Mapping[str, Any]
) -> list[str]:
    """``classes``, the training and the validation data set, as statements over a recipe.

    Where only one split is known, the validation folders are guessed by name.
    """
    train = splits[0]
    val, sure = (splits[1], True) if len(splits) > 1 else _guessed(train)
    folders = [train.images, train.masks, val.images, val.masks]
    root = _common(folders)
    data = [_dataset(root, train, options), _dataset(root, val, options)]
    named = repr(classes) if isinstance(classes, str) else _tuple(classes)
    return [
        f"classes = {named}",
        f"train_dataloader = dict(dataset=dict({data[0]}))",
        f"val_dataloader = test_dataloader = dict(dataset=dict({data[1]}))"
        + ("" if sure else "  # your validation folders"),
    ]


def weight_line(weights: Sequence[float]) -> str:
    """The loss with ``weights`` as a statement, or where to read them if they are many."""
    if len(weights) > _WEIGHTS_UP_TO:
        return "class_weight in classes.json"
    shown = ", ".join(f"{weight:.4g}" for weight in weights)
    loss = f'dict(_delete_=True, type="polaformer.PixelCrossEntropy", class_weight=[{shown}])'
    return f"model = dict(decode_head=dict(loss_decode={loss}))"


def _dataset(root: str, where: Where, options: Mapping[str, Any]) -> str:
    parts = [f"data_root={_quoted(root)}"] if root else []
    prefix = [f"{key}={_quoted(_below(root, path))}" for key, path in _folders(where)]
    parts.append(f"data_prefix=dict({', '.join(prefix)})")
    if where.ann_file:
        parts.append(f"ann_file={_quoted(_below(root, where.ann_file))}")
    for key in ("img_suffix", "seg_map_suffix"):
        if getattr(where, key) is not None:
            parts.append(f"{key}={_quoted(getattr(where, key))}")
    parts += [f"{key}={_shown(value)}" for key, value in options.items()]
    return ", ".join(parts)


def _folders(where: Where) -> tuple[tuple[str, str], tuple[str, str]]:
    return ("img_path", where.images), ("seg_map_path", where.masks)


def _common(folders: Sequence[str]) -> str:
    try:
        root = os.path.commonpath([os.path.normpath(folder) for folder in folders])
    except ValueError:  # absolute and relative ones, or other drives
        return ""
    return "" if root in (".", os.sep) else root


def _below(root: str, path: str) -> str:
    path = os.path.normpath(path)
    if root and os.path.commonpath([root, path]) == root:
        return os.path.relpath(path, root)
    return path if os.path.isabs(path) or not root else os.path.abspath(path)


def _guessed(train: Where) -> tuple[Where, bool]:
    """Folders named like those of ``train`` with the other split, and whether they are there."""
    more = (train.img_suffix, train.seg_map_suffix)
    for here, there in _SPLITS:
        images, masks = (_swapped(path, here, there) for path in (train.images, train.masks))
        if images != os.path.normpath(train.images) and masks != os.path.normpath(train.masks):
            sure = os.path.isdir(images) and os.path.isdir(masks)
            return Where("val", images, masks, *more), sure
    root = _common([train.images, train.masks])
    images, masks = os.path.join(root, "val", "images"), os.path.join(root, "val", "masks")
    return Where("val", images, masks, *more), False


def _swapped(path: str, here: str, there: str) -> str:
    """``path`` with ``there`` for ``here`` in the last of its folders that has it in its name."""
    parts = os.path.normpath(path).split(os.sep)
    for i in reversed(range(len(parts))):
        if here in parts[i]:
            return os.sep.join([*parts[:i], parts[i].replace(here, there), *parts[i + 1 :]])
    return path


def _tuple(names: Sequence[str]) -> str:
    return f"({', '.join(map(_quoted, names))}{',' if len(names) == 1 else ''})"


def _shown(value: Any) -> str:
    return _quoted(value) if isinstance(value, str) else repr(value)


def _quoted(text: str) -> str:
    """``text`` as a Python string in double quotes."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"' if text.isprintable() else repr(text)
