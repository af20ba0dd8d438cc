"""Known class sets: names, colours, and which number each class has in the label images."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from polaformer.errors import UserError, did_you_mean

Color = tuple[int, int, int]
IGNORED = 255

_OTHER_VALUES: dict[str, tuple[int, ...]] = {
    "ade20k": (0,),
    "cityscapes": (-1, *range(7), 9, 10, 14, 15, 16, 18, 29, 30),
    "voc2012": (),
    "coco_stuff": (),
}
_SUFFIXES = {"cityscapes": ("_leftImg8bit.png", "_gtFine_labelIds.png")}


@dataclass(frozen=True)
class ClassSet:
    """The classes of a published data set.

    ``values`` are the classes' numbers in the label images, ``ignored`` the numbers that are no
    class (255 is ignored in every set). Cityscapes' and COCO-Stuff's label images may also have
    been converted to indices; their names then end in 'TrainIds'. ``img_suffix`` and
    ``seg_map_suffix`` are what the names of the files end in where they differ.
    """

    name: str
    classes: tuple[str, ...]
    palette: tuple[Color, ...]
    values: tuple[int, ...]
    ignored: tuple[int, ...]
    img_suffix: str | None = None
    seg_map_suffix: str | None = None

    @property
    def reduce_zero_label(self) -> bool:
        """Whether class k has the number k + 1, and 0 is no class."""
        return self.values == tuple(range(1, len(self.classes) + 1))


def suffixes_of(
    known: ClassSet | None, img_suffix: str | None, seg_map_suffix: str | None
) -> tuple[str | None, str | None]:
    """What names of images and label images end in; '' asks for none where a set has some."""
    if known is not None:
        img_suffix = known.img_suffix if img_suffix is None else img_suffix
        seg_map_suffix = known.seg_map_suffix if seg_map_suffix is None else seg_map_suffix
    return (
        None if img_suffix == "" else img_suffix,
        None if seg_map_suffix == "" else seg_map_suffix,
    )


def class_set_names() -> tuple[str, ...]:
    """Names that ``class_set`` knows."""
    return tuple(_OTHER_VALUES)


@cache
def class_set(name: str) -> ClassSet:
    """'ade20k' (150 classes), 'cityscapes' (19), 'voc2012' (21) or 'coco_stuff' (171).

    The tables in ``class_tables`` name their sources. Raises UserError for another name.
    """
    if name not in _OTHER_VALUES:
        hint = did_you_mean(name, _OTHER_VALUES)
        raise UserError(
            f"classes='{name}' is no known class set{'; ' + hint if hint else ''} (known: "
            f"{', '.join(_OTHER_VALUES)}); names of your own are a list, for one class ('{name}',)"
        )
    table = files("polaformer.datasets").joinpath("class_tables", f"{name}.csv")
    lines = table.read_text(encoding="utf-8").splitlines()
    rows = list(csv.DictReader(line for line in lines if not line.startswith("#")))
    return ClassSet(
        name,
        tuple(row["name"] for row in rows),
        tuple((int(row["red"]), int(row["green"]), int(row["blue"])) for row in rows),
        tuple(int(row["value"]) for row in rows),
        _OTHER_VALUES[name],
        *_SUFFIXES.get(name, (None, None)),
    )


def voc_color(index: int) -> Color:
    """Colour ``index`` (0..255) of Pascal VOC's colour map: black, then 255 different ones.

    Bits 0, 3, 6 of the index are the highest bits of red, bits 1, 4, 7 of green, 2, 5 of blue, as
    in VOClabelcolormap of the VOC 2012 development kit.
    """
    red, green, blue = (
        sum(((index >> (3 * step + channel)) & 1) << (7 - step) for step in range(3))
        for channel in range(3)
    )
    return red, green, blue
