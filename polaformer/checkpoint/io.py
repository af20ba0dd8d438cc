"""The one place that opens weight files: read, load into a module, write, find the newest.

No file can run code here. `.pth` files go through torch's weights-only reader, and where that does
not know a harmless class (configuration objects, NumPy numbers), through the reader of
`polaformer.checkpoint.restricted`; anything else is refused.
"""

from __future__ import annotations

import logging
import os
import re
import warnings
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import nn

from polaformer.checkpoint.convert import Converter, converter_for, detect_ours
from polaformer.checkpoint.errors import CheckpointError, UnsafeCheckpointError
from polaformer.checkpoint.kinds import identify
from polaformer.checkpoint.loading import LoadReport, Source, apply_state, label_of
from polaformer.checkpoint.nesting import check_nesting, check_tree
from polaformer.checkpoint.origin import origin_of
from polaformer.checkpoint.restricted import Refused, read_restricted
from polaformer.checkpoint.state import ema_container, find_state, strip_prefixes
from polaformer.checkpoint.tables import table_grids
from polaformer.checkpoint.writing import write_checkpoint

_log = logging.getLogger(__name__)
_NUMBERED = re.compile(r"(epoch|iter)_(\d+)\.pth")
StatePath = str | os.PathLike[str]


def read_checkpoint(path: StatePath, map_location: str | torch.device = "cpu") -> dict[str, Any]:
    """The content of a weight file, whatever its suffix says; never runs code of the file.

    Raises `UnsafeCheckpointError` for a file that would need to, naming what it asks for, and
    `CheckpointError` with one line for a file that is missing, damaged, or something else.
    """
    path = Path(path)
    kind = identify(path)
    if kind == "safetensors":
        try:
            return load_file(path, device=str(map_location))
        except (SafetensorError, OSError, RuntimeError) as error:
            raise CheckpointError(f"{path} is damaged: {_first_line(error)}") from error
    well_formed = check_nesting(path, zipped=kind == "zip")
    content = (_read_torch if well_formed else _read_plain)(path, map_location)
    if not isinstance(content, Mapping):
        raise CheckpointError(f"{path} holds a {type(content).__name__}, not a dict of weights")
    check_tree(content, path)
    return dict(content)


def _read_torch(path: Path, map_location: str | torch.device) -> Any:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return torch.load(path, map_location=map_location, weights_only=True)
    except OSError as error:
        raise CheckpointError(f"{path} cannot be read: {_first_line(error)}") from error
    except Exception as error:  # torch's reader fails in many ways; ours says why
        _log.debug("%s: not a weights-only file: %s", path, _first_line(error))
    return _read_plain(path, map_location)


def _read_plain(path: Path, map_location: str | torch.device) -> Any:
    try:
        return _move(read_restricted(path), torch.device(map_location))
    except Refused as refused:
        raise UnsafeCheckpointError(
            f"{path} is refused: it would run code when opened (it asks for {refused}). If you "
            "trust its origin, open it in the program that wrote it, keep its tensors only, and "
            "save them with safetensors.torch.save_file; that file can be read here"
        ) from None


def _move(node: Any, device: torch.device) -> Any:
    if device.type == "cpu":
        return node
    if isinstance(node, torch.Tensor):
        return node.to(device)
    if isinstance(node, dict):
        for key, value in node.items():
            node[key] = _move(value, device)
        return node
    return [_move(item, device) for item in node] if isinstance(node, list) else node


def _first_line(error: BaseException) -> str:
    text = str(error).strip()
    return text.splitlines()[0] if text else type(error).__name__


def load_weights(
    module: nn.Module,
    path_or_state: StatePath | Mapping[str, Any],
    *,
    min_match: float = 0.9,
    allow_shape_mismatch: Sequence[str] = (),
    prefer_ema: bool = False,
    converter: Converter | str | None = None,
    prefix: str | None = None,
    source_grids: Mapping[str, Sequence[int]] | None = None,
    logger: logging.Logger | None = None,
) -> LoadReport:
    """Load weights of a file or a (nested) state into ``module`` and say what became of them.

    Args:
        module: A backbone or a whole model; unchanged if an error is raised.
        path_or_state: A file, a checkpoint's dict, or a bare state dict.
        min_match: Fraction of the model's tensors that the file must provide; of 1.0, messages
            advise nothing that would leave some out.
        allow_shape_mismatch: Patterns ('head.*') of tensors that may differ in shape and then keep
            the values they have.
        prefer_ema: Take averaged weights where the file has them.
        converter: None detects the published formats; 'none' takes names as they are; or a name.
        prefix: Use only what is below this prefix in the file, e.g. 'teacher.'.
        source_grids: (H, W) of position tables in the file by name or pattern, where not square.
        logger: Gets the report; the module's own logger by default.

    Raises `CheckpointError` for too few matches, a differing shape, or values that are not finite.
    """
    logger = logger or _log
    path = path_or_state if isinstance(path_or_state, str | os.PathLike) else None
    checkpoint = (
        path_or_state if isinstance(path_or_state, Mapping) else read_checkpoint(path_or_state)
    )
    label = label_of(path)
    try:
        state, container = find_state(checkpoint, prefer_ema)
        averaged = ema_container(checkpoint)
        if averaged and container != averaged:
            logger.info("%s also holds averaged weights under '%s'", label, averaged)
        source = Source(
            state=state,
            grids={**_stored_grids(checkpoint), **(source_grids or {})},
            label=label,
            container=container,
            path=None if path is None else str(path),
            origin=origin_of(checkpoint),
        )
        return apply_state(
            module,
            source,
            min_match=min_match,
            allow_shape_mismatch=(
                [allow_shape_mismatch]
                if isinstance(allow_shape_mismatch, str)
                else list(allow_shape_mismatch)
            ),
            converter=converter,
            prefix=prefix,
            logger=logger,
        )
    except CheckpointError as error:
        if label in str(error):
            raise
        raise type(error)(f"{label}: {error}") from error


def _stored_grids(checkpoint: Mapping[str, Any]) -> dict[str, Sequence[int]]:
    meta = checkpoint.get("meta")
    grids = meta.get("table_grids") if isinstance(meta, Mapping) else None
    return dict(grids) if isinstance(grids, Mapping) else {}


def newest_valid(work_dir: StatePath) -> tuple[Path | None, list[tuple[Path, str]]]:
    """The newest readable checkpoint of a run, and the newer unreadable ones with reasons.

    Nothing is deleted. Candidates are epoch_N.pth, iter_N.pth and what `last_checkpoint` names (by
    its file name, so a moved folder works). Files that are numbered higher but older than the named
    one belong to an earlier run and go last.
    """
    folder = Path(work_dir)
    bad: list[tuple[Path, str]] = []
    for path in _candidates(folder):
        try:
            find_state(read_checkpoint(path))
            _check_archive(path)
        except CheckpointError as error:
            bad.append((path, str(error)))
        else:
            return path, bad
    return None, bad


def _candidates(folder: Path) -> list[Path]:
    numbered = {
        path: int(found[2])
        for path in (folder.iterdir() if folder.is_dir() else ())
        if (found := _NUMBERED.fullmatch(path.name))
    }
    pointer = folder / "last_checkpoint"
    named = None
    if pointer.is_file():
        text = pointer.read_text(encoding="utf-8", errors="replace").strip()
        named = folder / re.split(r"[/\\]", text)[-1] if text else None
    if named is None or not named.is_file():
        newest_first = sorted(numbered, key=lambda p: (numbered[p], p.stat().st_mtime_ns, p.name))
        return ([] if named is None else [named]) + newest_first[::-1]
    family = named.name.partition("_")[0]
    stamp = named.stat().st_mtime_ns
    number = numbered.get(named, -1)

    def rank(path: Path) -> tuple[int, int, str]:
        related = path.name.startswith(f"{family}_") and number >= 0
        later = path.stat().st_mtime_ns >= stamp
        if related:
            group = 0 if numbered[path] > number and later else 2 if numbered[path] < number else 3
        else:
            group = 2 if not later else 0
        return group, -numbered[path], path.name

    others = sorted((path for path in numbered if path != named), key=rank)
    first = [path for path in others if rank(path)[0] == 0]
    return [*first, named, *(path for path in others if path not in first)]


def _check_archive(path: Path) -> None:
    """Compare every member with its checksum."""
    if not zipfile.is_zipfile(path):
        return
    with zipfile.ZipFile(path) as archive:
        broken = archive.testzip()
    if broken:
        raise CheckpointError(f"{path} is damaged: the checksum of {broken} does not fit")


def convert_file(
    source: StatePath, target: StatePath, to: str = "ours", converter: str | None = None
) -> str:
    """Convert the weights of a file of a published format into ours, or ours back (to='official').

    Writes a flat state (``.safetensors``) or ``{'state_dict': ...}``; returns the format's name.
    ``converter`` names the format where several are possible (a softmax PolaSwin as timm's).
    """
    if to not in ("ours", "official"):
        raise CheckpointError(f"to='{to}'; allowed: 'ours', 'official'")
    state, _ = find_state(read_checkpoint(source))
    found = detect_ours(state) if (to, converter) == ("official", None) else None
    found = found or converter_for(converter, state)
    if found is None:
        raise CheckpointError(f"{source}: the names belong to no format that can be converted")
    converted = found.to_ours(state) if to == "ours" else found.to_official(state)
    flat = Path(target).suffix == ".safetensors"
    write_checkpoint(converted if flat else {"state_dict": converted}, target)
    return found.name


__all__ = [
    "CheckpointError",
    "LoadReport",
    "UnsafeCheckpointError",
    "convert_file",
    "find_state",
    "load_weights",
    "newest_valid",
    "read_checkpoint",
    "strip_prefixes",
    "table_grids",
    "write_checkpoint",
]
