"""Sentences on the files of a segmentation data set that are bad or left out, never too long."""

from __future__ import annotations

from collections.abc import Sequence

from polaformer.datasets.mask_pairs import DOUBLE
from polaformer.datasets.sources import printable

_MAX_NAMED = 10
Told = Sequence[tuple[str, str]]
"""(path, reason) of each file."""


def lines_of(told: Told) -> str:
    """A line for each of the first ten files, and how many more there are."""
    lines = [f"  {printable(path)}: {why}" for path, why in told[:_MAX_NAMED]]
    if len(told) > _MAX_NAMED:
        lines.append(f"  … and {len(told) - _MAX_NAMED} more")
    return "\n".join(lines)


def unpaired(alone: Told) -> str:
    """The files without partner, those of a double name apart, and what can be done."""
    double = [one for one in alone if one[1].startswith(DOUBLE)]
    lonely = [one for one in alone if one not in double]
    kinds = (("files without partner", lonely), ("double names", double))
    told = [f"{len(files)} {what}:\n{lines_of(files)}" for what, files in kinds if files]
    return "\n".join(
        [
            *told,
            "add or remove files, list those to use in ann_file, or train on the rest with "
            "on_error='skip'",
        ]
    )


def left_out(skipped: Told) -> str:
    """'12 skipped: …' with the first ten files."""
    shown = [f"{printable(path)} ({why})" for path, why in skipped[:_MAX_NAMED]]
    more = len(skipped) - _MAX_NAMED
    shown += [f"… and {more} more"] if more > 0 else []
    return f"{len(skipped)} skipped: {'; '.join(shown)}"
