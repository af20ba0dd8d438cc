"""How Python comes to the stand-in: in this process, and in every process it starts."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

NAME = "mmcv._ext"


class ExtensionFinder:
    """The last finder that Python asks, and so silent where a compiled ``mmcv._ext`` exists."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """The stand-in for ``mmcv._ext``; None for every other name."""
        if fullname != NAME:
            return None
        return ModuleSpec(fullname, self, origin=__package__)  # type: ignore[arg-type]

    def create_module(self, spec: ModuleSpec) -> None:
        """Leave it to Python to make the module."""

    def exec_module(self, module: ModuleType) -> None:
        """Fill the module; from now on processes started by this one find it as well."""
        from polaformer.compat.mmcv_ops import extension

        extension.fill(module)
        _hand_on_to_children()


class _Installed:
    """Something that installs the finder in the process that unpickles it."""

    def __reduce__(self) -> tuple[Any, ...]:
        return _install_in_child, ()


def _install_in_child() -> _Installed:
    install()
    return _Installed()


def _hand_on_to_children() -> None:
    """Install the finder in every spawned process before anything else arrives there.

    A spawned process unpickles its target and arguments, a dataset of mmdet among them, and imports
    their modules for that. The configuration that ``multiprocessing`` copies from process to child
    stands before both in the pickle.
    """
    from multiprocessing.process import current_process

    config = getattr(current_process(), "_config", None)
    if isinstance(config, dict):
        config.setdefault(__name__, _Installed())


def install() -> None:
    """Put the finder behind all others; calling it again changes nothing."""
    if not any(isinstance(finder, ExtensionFinder) for finder in sys.meta_path):
        sys.meta_path.append(ExtensionFinder())  # type: ignore[arg-type]
