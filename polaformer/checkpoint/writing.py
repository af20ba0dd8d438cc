"""Write a checkpoint so that it is either whole or not there, and always safe to read."""

from __future__ import annotations

import contextlib
import glob
import os
import socket
from collections import Counter, OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any, cast

import torch
from safetensors.torch import save as encode_safetensors

from polaformer.checkpoint.errors import CheckpointError

# What torch's weights-only reader accepts; subclasses (NumPy numbers, enums) are not among them.
_ATOMS: tuple[type, ...] = (type(None), bool, int, float, complex, str, bytearray)
_ATOMS += (torch.dtype, torch.device, torch.Size)
_SEQUENCES = (list, tuple, set)
_MAPPINGS = (dict, OrderedDict, Counter)
_TENSORS = (torch.Tensor, torch.nn.Parameter)


def write_checkpoint(obj: Any, path: str | os.PathLike[str]) -> None:
    """Write ``obj`` to ``path``: first under a temporary name, renamed once it is on the disk.

    A path ending in ``.safetensors`` takes a flat dict of tensors. Raises `CheckpointError` for an
    object that the safe loader could not read back, naming where it lies, and for a disk or folder
    that refuses; then no temporary file is left and an earlier file of that name is as it was.
    """
    path = Path(path)
    save = (
        _safetensors_saver(obj, path) if path.suffix == ".safetensors" else _torch_saver(obj, path)
    )
    temporary = path.with_name(f".{path.name}.{socket.gethostname()}-{os.getpid()}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        _remove_leftovers(path.parent)
        with temporary.open("wb") as stream:
            output = _Output(stream)
            try:
                save(output)
            except RuntimeError as error:
                raise output.error or error from error
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(temporary, path)
    except (OSError, RuntimeError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise CheckpointError(
            f"cannot write {path}: {reason.splitlines()[0] if reason else type(error).__name__}"
        ) from error
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink()
    _sync_folder(path.parent)


class _Output:
    """A stream that remembers why it failed: torch's writer tells something else then."""

    def __init__(self, stream: IO[bytes]) -> None:
        self.stream = stream
        self.flush = stream.flush
        self.error: OSError | None = None

    def write(self, data: Any) -> int:
        try:
            return self.stream.write(data)
        except OSError as error:
            self.error = self.error or error
            raise


def _torch_saver(obj: Any, path: Path) -> Callable[[_Output], None]:
    if problem := find_unsafe(obj):
        place, kind = problem
        raise CheckpointError(
            f"cannot write {path}: {place} is a {kind}, which the safe loader does not read; store "
            "tensors, numbers, texts and plain containers only"
        )
    return lambda output: torch.save(obj, cast(IO[bytes], output))


def _safetensors_saver(obj: Any, path: Path) -> Callable[[_Output], None]:
    if type(obj) not in _MAPPINGS:
        raise CheckpointError(
            f"cannot write {path}: a .safetensors file holds a flat dict of tensors"
        )
    tensors: dict[str, torch.Tensor] = {}
    for key, value in obj.items():
        if type(key) is not str or type(value) not in _TENSORS:
            kind = type(value).__name__
            raise CheckpointError(f"cannot write {path}: {key} is a {kind}, only tensors fit")
        tensors[key] = value.detach().cpu().clone(memory_format=torch.contiguous_format)
    return lambda output: _write_all(output, encode_safetensors(tensors))


def _write_all(output: _Output, data: bytes) -> None:
    output.write(data)


def find_unsafe(obj: Any) -> tuple[str, str] | None:
    """Where the first value lies that `torch.load(weights_only=True)` refuses, and its type."""
    return _find_unsafe(obj, "the object", set())


def _find_unsafe(obj: Any, place: str, above: set[int]) -> tuple[str, str] | None:
    kind = type(obj)
    if kind in _ATOMS or kind in _TENSORS:
        return None
    name = f"{kind.__module__}.{kind.__qualname__}".removeprefix("builtins.")
    if kind not in _SEQUENCES and kind not in _MAPPINGS:
        return place, name
    if id(obj) in above:
        return place, f"{name} that contains itself"
    above = above | {id(obj)}
    if kind in _SEQUENCES:
        children = [(f"{place}[{i}]", item) for i, item in enumerate(obj)]
    else:
        root = place == "the object"
        children = [(f"a key of {place}", key) for key in obj]
        children += [(_place(place, key, root), value) for key, value in obj.items()]
        children += [(f"{place}.{k}", v) for k, v in getattr(obj, "__dict__", {}).items()]
    for where, child in children:
        if problem := _find_unsafe(child, where, above):
            return problem
    return None


def _place(parent: str, key: Any, root: bool) -> str:
    if root:
        return str(key)
    return (
        f"{parent}.{key}" if isinstance(key, str) and key.isidentifier() else f"{parent}[{key!r}]"
    )


def _remove_leftovers(folder: Path) -> None:
    """Delete temporary files that killed processes of this machine left in ``folder``."""
    for old in folder.glob(f".*.{glob.escape(socket.gethostname())}-*.tmp"):
        pid = old.name.removesuffix(".tmp").rpartition("-")[2]
        if pid.isdigit() and not _is_alive(int(pid)):
            old.unlink(missing_ok=True)


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (OSError, OverflowError):
        return True
    return True


def _sync_folder(folder: Path) -> None:
    """Make the new name durable; systems that cannot sync a folder do without."""
    try:
        handle = os.open(folder, os.O_RDONLY)
    except OSError:
        return
    try:
        os.fsync(handle)
    except OSError:
        return
    finally:
        os.close(handle)
