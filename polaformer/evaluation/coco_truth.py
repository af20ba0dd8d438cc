"""The ground truth of an evaluation: the file's annotations of the pictures that were seen."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from polaformer.coco.format import CocoFile, read_coco
from polaformer.errors import UserError, did_you_mean


@dataclass
class Truth:
    """What detections are compared with.

    ``names[i]``, ``category_ids[i]`` (the file's) and ``numbers[i]`` belong to label i. ``images``
    and ``objects`` are entries as pycocotools wants them, of the seen pictures and the trained
    categories only. Their ids are numbers from 1 on, in the order of the file's ids: pycocotools
    sorts by them, cannot sort numbers among strings, and takes a match with id 0 for none.

    ``unreachable`` counts the objects whose box has no area or lies outside of its picture; they
    are among ``objects``. ``written_ids`` are the file's, see ``CocoFile``.
    """

    path: str
    names: tuple[str, ...]
    category_ids: tuple[Any, ...]
    numbers: tuple[int, ...]
    images: list[dict[str, Any]]
    objects: list[dict[str, Any]]
    unreachable: int = 0
    written_ids: Mapping[str, Mapping[Any, str]] = field(default_factory=dict)

    def counts(self) -> dict[str, dict[str, int]]:
        """Pictures and objects (crowd regions are none) of each class."""
        places: dict[int, list[int]] = {number: [] for number in self.numbers}
        for entry in self.objects:
            if not entry["iscrowd"]:
                places[entry["category_id"]].append(entry["image_id"])
        return {
            name: {"images": len(set(places[number])), "objects": len(places[number])}
            for name, number in zip(self.names, self.numbers, strict=True)
        }

    def for_masks(self) -> tuple[list[dict[str, Any]], int]:
        """The objects with their masks as run lengths, and how many have no usable mask.

        An object without one can be neither found nor missed: its box becomes a region in which
        detections do not count, like a crowd.

        Raises:
            UserError: not one object has a mask, or the size of a picture is not known.
        """
        sizes = {image["id"]: (image["height"], image["width"]) for image in self.images}
        if any(None in size for size in sizes.values()):
            raise UserError(
                f"the size of a picture is neither in {self.path} nor in the predictions; "
                "PackDetInputs.meta_keys must list 'ori_shape'"
            )
        objects, without = [], 0
        for entry in self.objects:
            size = sizes[entry["image_id"]]
            mask = _run_lengths(entry["segmentation"], size)
            if mask is None:
                without += 1
                entry = {**entry, "iscrowd": 1}
                mask = _run_lengths([_corners(entry["bbox"])], size)
            objects.append({**entry, "segmentation": mask})
        if objects and without == len(objects):
            raise UserError(
                f"metric 'segm' is asked, but no object in {self.path} has a usable segmentation; "
                "use metric='bbox'"
            )
        return objects, without


def read_truth(
    path: str, meta: Mapping[str, Any], sizes: Mapping[Any, tuple[int, int] | None]
) -> Truth:
    """The truth in ``path`` about the pictures ``sizes``, id -> height and width where known.

    ``meta`` is the data set's: 'classes', and 'category_ids' of the file 'ann_file'. For another
    file the categories are those of the same names.

    Raises:
        UserError: a class or a picture is not in the file.
    """
    file = read_coco(path)
    names, category_ids = _categories(file, meta)
    images = {image["id"]: image for image in file.images}
    _refuse_unknown(path, sizes, images)
    numbers = {key: n for n, key in enumerate(sorted(category_ids, key=id_order), start=1)}
    labels = tuple(numbers[key] for key in category_ids)
    truth = Truth(str(path), names, category_ids, labels, [], [], 0, file.written_ids)
    for number, key in enumerate(sorted(sizes, key=id_order), start=1):
        height, width = sizes[key] or (images[key].get("height"), images[key].get("width"))
        truth.images.append({"id": number, "height": height, "width": width})
        _add(truth, file.by_image.get(key, ()), number, numbers)
        before = len(truth.objects)
        _add(truth, file.unreachable.get(key, ()), number, numbers)
        truth.unreachable += sum(not entry["iscrowd"] for entry in truth.objects[before:])
    return truth


def _add(truth: Truth, entries: Sequence[Mapping], image: int, numbers: Mapping[Any, int]) -> None:
    for entry in entries:
        if entry["category_id"] in numbers:
            truth.objects.append(
                {
                    "id": len(truth.objects) + 1,
                    "image_id": image,
                    "category_id": numbers[entry["category_id"]],
                    "bbox": entry["bbox"],
                    "area": entry["area"],
                    "iscrowd": entry["iscrowd"],
                    "segmentation": entry["segmentation"],
                }
            )


def id_order(key: Any) -> tuple[bool, Any]:
    """Sorts ids: numbers, then strings."""
    return isinstance(key, str), key


def _refuse_unknown(path: str, seen: Mapping, images: Mapping) -> None:
    unknown = [key for key in seen if key not in images]
    if unknown:
        some = ", ".join(map(str, unknown[:5]))
        raise UserError(
            f"{len(unknown)} of {len(seen)} predicted pictures are not in {path} (ids {some}"
            f"{', …' if len(unknown) > 5 else ''}); the metric's ann_file must be the file of the "
            "data set"
        )


def _categories(file: CocoFile, meta: Mapping) -> tuple[tuple[str, ...], tuple[Any, ...]]:
    """Name and id in the file of every label."""
    names = tuple(str(name) for name in meta.get("classes") or ())
    by_name = {category["name"]: category["id"] for category in file.categories}
    known = meta.get("category_ids")
    if known is not None and str(meta.get("ann_file", file.path)) == str(file.path):
        by_id = {key: name for name, key in by_name.items()}
        return names or tuple(by_id[key] for key in known), tuple(known)
    if not names:
        raise UserError("CocoMetric needs the classes of the data set (metainfo), but it has none")
    for name in names:
        if name not in by_name:
            hint = did_you_mean(name, by_name)
            raise UserError(
                f"class '{name}' is not in {file.path}; {hint + ' ' if hint else ''}"
                f"its categories are {', '.join(by_name)}"
            )
    return names, tuple(by_name[name] for name in names)


def _run_lengths(segmentation: Any, size: tuple[int, int]) -> dict[str, Any] | None:
    """Compressed run lengths of polygons or run lengths; None where there is no usable mask."""
    from pycocotools import mask as coco_mask

    if isinstance(segmentation, Mapping):
        if tuple(segmentation["size"]) != tuple(size):
            return None
        if isinstance(segmentation["counts"], (str, bytes)):
            return dict(segmentation)
        return coco_mask.frPyObjects(dict(segmentation), *size)
    polygons = [polygon for polygon in segmentation or () if len(polygon) >= 6]
    if not polygons:
        return None
    return coco_mask.merge(coco_mask.frPyObjects(polygons, *size))


def _corners(bbox: Sequence[float]) -> list[float]:
    x, y, width, height = bbox
    return [x, y, x + width, y, x + width, y + height, x, y + height]
