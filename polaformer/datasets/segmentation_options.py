"""Options of a segmentation data set that need a look before they are used."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from polaformer.datasets.class_sets import ClassSet, class_set, class_set_names
from polaformer.datasets.coco_classes import asked_classes
from polaformer.errors import UserError

FOLDERS = {"img_path": "images/training", "seg_map_path": "annotations/training"}


def named_classes(
    classes: Any, metainfo: Mapping[str, Any] | None
) -> tuple[ClassSet | None, tuple[str, ...]]:
    """The known set, if ``classes`` (or those in ``metainfo``) name one, and the names."""
    within = (metainfo or {}).get("classes")
    given = within if classes is None else classes
    if isinstance(given, str):
        known = class_set(given)
        return known, known.classes
    names = asked_classes(classes, metainfo)
    if names is None:
        raise UserError(
            "SegmentationDataset needs classes: names in the order of their indices, or the name "
            f"of a known set ({', '.join(class_set_names())})"
        )
    return None, names


def checked_folders(
    data_prefix: Mapping[str, str | None] | None, test_mode: bool
) -> dict[str, str]:
    """The two folders with '~' resolved, without a seg_map_path of None; or UserError."""
    given = FOLDERS if data_prefix is None else data_prefix
    shape = "dict(img_path='folder of the images', seg_map_path='folder of the label images')"
    if not isinstance(given, Mapping) or set(given) - set(FOLDERS):
        raise UserError(f"data_prefix={data_prefix!r} must be {shape}")
    missing = [key for key in FOLDERS if key not in given]
    if missing:
        raise UserError(f"data_prefix={dict(given)!r} lacks {missing[0]}: {shape}")
    if given["seg_map_path"] is None and not test_mode:
        raise UserError("data_prefix: seg_map_path=None trains on nothing; name the folder")
    wrong = [k for k, v in given.items() if not isinstance(v, str | os.PathLike | None)]
    if wrong or given["img_path"] is None:
        raise UserError(f"data_prefix={dict(given)!r} must be {shape}")
    return {k: os.path.expanduser(v) for k, v in given.items() if v is not None}
