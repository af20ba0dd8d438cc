"""Which versions of other libraries this project was tested with; a difference is only advice."""

from __future__ import annotations

import re
from importlib import metadata

TESTED = {
    "torch": "2.14.1",
    "torchvision": "0.29.1",
    "timm": "1.0.31",
    "mmengine": "0.10.7",
    "numpy": "2.4.6",
}

OLDEST = {
    "torch": "2.6",
    "torchvision": "0.21",
    "timm": "1.0.15",
    "mmengine": "0.10.7",
    "numpy": "1.26",
}


def installed(name: str) -> str | None:
    """The version of an installed distribution, or None."""
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def advice() -> list[str]:
    """One sentence per library that is missing, older than supported, or newer than tested."""
    found = []
    for name, tested in TESTED.items():
        version = installed(name)
        if version is None:
            found.append(f"{name} is not installed; {name} {tested} was tested")
        elif _numbers(version) < _numbers(OLDEST[name]):
            found.append(
                f"{name} {version} is older than {OLDEST[name]}, the oldest supported; "
                f"{name} {tested} was tested"
            )
        elif _numbers(version)[:2] > _numbers(tested)[:2]:
            found.append(f"{name} {version} is newer than {tested}, the newest that was tested")
    return found


def _numbers(version: str) -> tuple[int, ...]:
    """The release part of a version: '2.14.1+cu130' gives (2, 14, 1)."""
    release = re.match(r"\d+(?:\.\d+)*", version)
    return tuple(int(part) for part in release.group().split(".")) if release else ()
