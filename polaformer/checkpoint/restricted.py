"""A pickle reader that never imports and never calls anything a file names.

The names in a file are looked up in the table of `polaformer.checkpoint.rebuild` and nowhere else:
tensors, numbers, plain containers, and a few record classes (yacs configurations among them) that
become plain dictionaries. Every other name, and every opcode that is not needed for these, refuses
the file. Reads the zip format and the older sequential format of `torch.save`, with pickle
protocols 0 to 5.
"""

from __future__ import annotations

import io
import pickletools
import struct
import sys
import zipfile
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

import numpy as np
import torch

from polaformer.checkpoint.errors import CheckpointError
from polaformer.checkpoint.rebuild import (
    Damaged,
    Name,
    Record,
    Refused,
    Storage,
    StorageKind,
    build_array,
    build_dtype,
    call,
    new,
    resolve,
)

LEGACY_MAGIC = 0x1950A86A20F9469CFC6C
_LEGACY_PROTOCOL = 1001
_CONSTANTS: dict[str, Any] = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False}
_PUSH_ARGUMENT = frozenset(
    [
        "INT",
        "BININT",
        "BININT1",
        "BININT2",
        "LONG",
        "LONG1",
        "LONG4",
        "FLOAT",
        "BINFLOAT",
        "STRING",
        "BINSTRING",
        "SHORT_BINSTRING",
        "UNICODE",
        "SHORT_BINUNICODE",
        "BINUNICODE",
        "BINUNICODE8",
        "SHORT_BINBYTES",
        "BINBYTES",
        "BINBYTES8",
        "BYTEARRAY8",
    ]
)
_EMPTY: dict[str, Callable[[], Any]] = {
    "EMPTY_LIST": list,
    "EMPTY_TUPLE": tuple,
    "EMPTY_DICT": dict,
    "EMPTY_SET": set,
}


def read_restricted(path: Path) -> Any:
    """The content of a `torch.save` file, built from plain data only.

    Raises `Refused` (with the name) for a file that needs anything else, `CheckpointError` for a
    damaged file.
    """
    try:
        with path.open("rb") as stream:
            if stream.read(4) == b"PK\x03\x04":
                return _read_zip(path)
            stream.seek(0)
            return _read_sequential(stream, path.stat().st_size)
    except (Refused, CheckpointError):
        raise
    except (Damaged, EOFError, zipfile.BadZipFile) as error:
        raise CheckpointError(f"{path} is damaged: {error or 'it ends too early'}") from error
    except Exception as error:  # a damaged file can be wrong in any way
        reason = f"{type(error).__name__}: {error}".splitlines()[0]
        raise CheckpointError(f"{path} is damaged: {reason}") from error


def _read_zip(path: Path) -> Any:
    with zipfile.ZipFile(path) as archive:
        members = {info.filename: info for info in archive.infolist()}
        pickles = [name for name in members if name.split("/", 1)[-1] == "data.pkl"]
        if len(pickles) != 1:
            raise Damaged(f"the archive holds {len(pickles)} data.pkl, one is needed")
        root = pickles[0].removesuffix("data.pkl")
        byteorder = f"{root}byteorder"
        if byteorder in members and archive.read(byteorder) != sys.byteorder.encode():
            raise Damaged("it was written on a machine of the other byte order")
        storages: dict[str, torch.UntypedStorage] = {}

        def load_storage(pid: tuple) -> Storage:
            _, kind, key, _location, count = pid
            if key not in storages:
                info = members.get(f"{root}data/{key}")
                if info is None or info.compress_type != zipfile.ZIP_STORED:
                    raise Damaged(f"the storage {key!r} is missing or compressed")
                if info.file_size != count * kind.itemsize:
                    raise Damaged(f"the storage {key!r} has {info.file_size} bytes")
                storages[key] = _storage_of(bytearray(archive.read(info)))
            return Storage(storages[key], kind.dtype)

        return Machine(load_storage).run(io.BytesIO(archive.read(pickles[0])))


def _read_sequential(stream: IO[bytes], file_size: int) -> Any:
    storages: dict[str, tuple[torch.UntypedStorage, int]] = {}

    def load_storage(pid: tuple) -> Storage:
        _, kind, key, _location, count, *view = pid
        if view and view[0] is not None:
            raise Damaged("storage views of torch 0.3 are not supported")
        if key not in storages:
            if not 0 <= count * kind.itemsize <= file_size:
                raise Damaged(f"the storage {key!r} is larger than the file")
            storages[key] = (torch.UntypedStorage(count * kind.itemsize), kind.itemsize)
        return Storage(storages[key][0], kind.dtype)

    if Machine(None).run(stream) != LEGACY_MAGIC:
        raise Damaged("it is a Python pickle that torch.save did not write")
    if Machine(None).run(stream) != _LEGACY_PROTOCOL:
        raise Damaged("it has an unknown version of torch's sequential format")
    Machine(None).run(stream)
    content = Machine(load_storage).run(stream)
    keys = Machine(None).run(stream)
    if not isinstance(keys, list) or set(keys) != set(storages):
        raise Damaged("its list of storages does not fit its content")
    for key in keys:
        storage, itemsize = storages[key]
        (count,) = struct.unpack("<q", stream.read(8))
        data = stream.read(storage.nbytes())
        if count * itemsize != storage.nbytes() or len(data) != storage.nbytes():
            raise Damaged(f"the storage {key!r} is cut short")
        storage.copy_(_storage_of(bytearray(data)))
    return content


def _storage_of(data: bytearray) -> torch.UntypedStorage:
    if not data:
        return torch.UntypedStorage(0)
    return torch.frombuffer(data, dtype=torch.uint8).untyped_storage()


class Machine:
    """A pickle stack machine over plain data; `load_storage` answers the persistent ids."""

    def __init__(self, load_storage: Callable[[tuple], Storage] | None) -> None:
        self.load_storage = load_storage
        self.stack: list[Any] = []
        self.marks: list[list[Any]] = []
        self.memo: dict[int, Any] = {}

    def run(self, stream: IO[bytes]) -> Any:
        """Execute one pickle of ``stream`` and leave the stream behind its end."""
        for opcode, argument, _ in pickletools.genops(stream):
            name = opcode.name
            if name == "STOP":
                return self.stack.pop()
            if name in _CONSTANTS:
                self.stack.append(_CONSTANTS[name])
            elif name in _PUSH_ARGUMENT:
                self.stack.append(argument)
            elif name in _EMPTY:
                self.stack.append(_EMPTY[name]())
            else:
                handler = getattr(self, f"op_{name.lower()}", None)
                if handler is None:
                    raise Refused(f"the pickle opcode {name}")
                handler(argument)
        raise Damaged("it ends too early")

    def _pop_mark(self) -> list[Any]:
        if not self.marks:
            raise Damaged("a mark is missing")
        items, self.stack = self.stack, self.marks.pop()
        return items

    def op_proto(self, version: int) -> None:
        if version > 5:
            raise Damaged(f"pickle protocol {version} is unknown")

    def op_frame(self, _: int) -> None:
        """Frames carry no data of their own."""

    def op_mark(self, _: None) -> None:
        self.marks.append(self.stack)
        self.stack = []

    def op_pop(self, _: None) -> None:
        if self.stack:
            self.stack.pop()
        else:
            self._pop_mark()

    def op_pop_mark(self, _: None) -> None:
        self._pop_mark()

    def op_dup(self, _: None) -> None:
        self.stack.append(self.stack[-1])

    def op_get(self, index: int) -> None:
        self.stack.append(self.memo[index])

    def op_put(self, index: int) -> None:
        self.memo[index] = self.stack[-1]

    op_binget = op_long_binget = op_get
    op_binput = op_long_binput = op_put

    def op_memoize(self, _: None) -> None:
        self.memo[len(self.memo)] = self.stack[-1]

    def op_tuple(self, _: None) -> None:
        items = self._pop_mark()
        self.stack.append(tuple(items))

    def _tuple_of(self, count: int) -> None:
        items = tuple(self.stack[-count:])
        del self.stack[-count:]
        self.stack.append(items)

    def op_tuple1(self, _: None) -> None:
        self._tuple_of(1)

    def op_tuple2(self, _: None) -> None:
        self._tuple_of(2)

    def op_tuple3(self, _: None) -> None:
        self._tuple_of(3)

    def op_list(self, _: None) -> None:
        items = self._pop_mark()
        self.stack.append(items)

    def op_dict(self, _: None) -> None:
        items = self._pop_mark()
        self.stack.append(dict(zip(items[::2], items[1::2], strict=True)))

    def op_frozenset(self, _: None) -> None:
        items = self._pop_mark()
        self.stack.append(frozenset(items))

    def op_append(self, _: None) -> None:
        item = self.stack.pop()
        self._top(list).append(item)

    def op_appends(self, _: None) -> None:
        items = self._pop_mark()
        self._top(list).extend(items)

    def op_additems(self, _: None) -> None:
        items = self._pop_mark()
        self._top(set).update(items)

    def op_setitem(self, _: None) -> None:
        value, key = self.stack.pop(), self.stack.pop()
        self._top(dict, OrderedDict, Record)[key] = value

    def op_setitems(self, _: None) -> None:
        items = self._pop_mark()
        target = self._top(dict, OrderedDict, Record)
        target.update(zip(items[::2], items[1::2], strict=True))

    def _top(self, *kinds: type) -> Any:
        if type(self.stack[-1]) not in kinds:
            raise Damaged(f"an item is put into a {type(self.stack[-1]).__name__}")
        return self.stack[-1]

    def op_global(self, argument: str) -> None:
        module, _, name = argument.partition(" ")
        self.stack.append(resolve(module, name))

    def op_stack_global(self, _: None) -> None:
        name, module = self.stack.pop(), self.stack.pop()
        if type(name) is not str or type(module) is not str:
            raise Damaged("a global name is not a text")
        self.stack.append(resolve(module, name))

    def op_reduce(self, _: None) -> None:
        arguments, function = self.stack.pop(), self.stack.pop()
        self.stack.append(call(function, arguments))

    def op_newobj(self, _: None) -> None:
        arguments, kind = self.stack.pop(), self.stack.pop()
        self.stack.append(new(kind, arguments))

    def op_build(self, _: None) -> None:
        state = self.stack.pop()
        target = self.stack[-1]
        if type(target) is Record:
            target.build(state)
        elif type(target) is OrderedDict:
            if isinstance(state, dict) and isinstance(state.get("_metadata"), dict):
                target._metadata = state["_metadata"]  # type: ignore[attr-defined]
        elif type(target) is np.ndarray:
            build_array(target, state)
        elif isinstance(target, np.dtype):
            build_dtype(target, state)
        elif type(target) is not torch.nn.Parameter:
            raise Refused(f"a state set on a {type(target).__name__}")

    def op_binpersid(self, _: None) -> None:
        pid = self.stack.pop()
        if (
            self.load_storage is None
            or type(pid) is not tuple
            or len(pid) not in (5, 6)
            or pid[0] != "storage"
            or type(pid[1]) is not StorageKind
            or type(pid[2]) is not str
            or type(pid[4]) is not int
        ):
            raise Refused("a persistent id that is not a tensor storage")
        self.stack.append(self.load_storage(pid))


__all__ = ["LEGACY_MAGIC", "Machine", "Name", "Record", "Refused", "read_restricted"]
