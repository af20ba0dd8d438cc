"""The names a weight file may contain, and what each of them becomes.

The table maps text to functions written here. Nothing is imported by a name from a file, and no
object of a library is handed to the file, so there is nothing that a crafted file could call or
alter.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch


class Refused(Exception):
    """The file needs something that plain data does not need; the text names it."""


class Damaged(Exception):
    """The file is not well formed."""


@dataclass(frozen=True)
class Name:
    """A permitted name of the table; only a text, never the object itself."""

    full: str


class Record(dict):
    """A configuration or record object of a foreign library, as a plain dictionary."""

    def __init__(self, content_is_state: bool) -> None:
        super().__init__()
        self._content_is_state = content_is_state

    def build(self, state: Any) -> None:
        """Take over the attributes where they are the content; drop them where not."""
        if isinstance(state, tuple) and len(state) == 2:
            state = state[0]
        if self._content_is_state and isinstance(state, dict):
            self.update(state)


@dataclass(frozen=True)
class StorageKind:
    """A storage class of torch: the element type, None for untyped bytes."""

    dtype: torch.dtype | None

    @property
    def itemsize(self) -> int:
        return 1 if self.dtype is None else self.dtype.itemsize


@dataclass(frozen=True)
class Storage:
    """Bytes of the file with the element type they were stored as."""

    data: torch.UntypedStorage
    dtype: torch.dtype | None


# Whether the content lies in the attributes (True) or in the items (False).
_RECORDS = {
    "yacs.config.CfgNode": False,
    "argparse.Namespace": True,
    "mmengine.logging.history_buffer.HistoryBuffer": True,
}
_STORAGES = {
    "Float": torch.float32,
    "Double": torch.float64,
    "Half": torch.float16,
    "BFloat16": torch.bfloat16,
    "Long": torch.int64,
    "Int": torch.int32,
    "Short": torch.int16,
    "Char": torch.int8,
    "Byte": torch.uint8,
    "Bool": torch.bool,
    "ComplexFloat": torch.complex64,
    "ComplexDouble": torch.complex128,
}
_DTYPES = [
    "float32",
    "float64",
    "float16",
    "bfloat16",
    "int64",
    "int32",
    "int16",
    "int8",
    "uint8",
    "bool",
    "complex64",
    "complex128",
    "uint16",
    "uint32",
    "uint64",
    "float8_e4m3fn",
    "float8_e5m2",
]
_PYTHON_2 = {"__builtin__": "builtins", "copy_reg": "copyreg", "numpy.core": "numpy._core"}
_NUMPY_DTYPE = re.compile(r"[<>=|]?(\?|[bhilqBHILQefd]|[biufc]\d{1,2}|[SU]\d{1,6})")


def _tensor(
    storage: Storage, offset: int, size: tuple, stride: tuple, dtype: torch.dtype | None
) -> torch.Tensor:
    if type(storage) is not Storage or dtype is None:
        raise Damaged("a tensor without a storage")
    numbers = (offset, *size, *stride)
    if len(size) != len(stride) or any(type(n) is not int or n < 0 for n in numbers):
        raise Damaged("a tensor with an impossible shape")
    if 0 not in size:
        last = offset + sum((n - 1) * step for n, step in zip(size, stride, strict=True))
        if (last + 1) * dtype.itemsize > storage.data.nbytes():
            raise Damaged("a tensor reaches beyond its storage")
    return torch.empty(0, dtype=dtype).set_(storage.data, offset, tuple(size), tuple(stride))


def _rebuild_tensor(storage: Storage, offset: int, size: tuple, stride: tuple) -> torch.Tensor:
    return _tensor(storage, offset, size, stride, storage.dtype)


def _rebuild_tensor_v2(
    storage: Storage,
    offset: int,
    size: tuple,
    stride: tuple,
    requires_grad: bool,
    hooks: Any,
    metadata: Any = None,
) -> torch.Tensor:
    return _tensor(storage, offset, size, stride, storage.dtype)


def _rebuild_tensor_v3(
    storage: Storage,
    offset: int,
    size: tuple,
    stride: tuple,
    requires_grad: bool,
    hooks: Any,
    dtype: torch.dtype,
    metadata: Any = None,
) -> torch.Tensor:
    if type(dtype) is not torch.dtype:
        raise Damaged("a tensor without an element type")
    return _tensor(storage, offset, size, stride, dtype)


def _rebuild_parameter(
    data: torch.Tensor, requires_grad: bool, hooks: Any, state: Any = None
) -> torch.nn.Parameter:
    if not isinstance(data, torch.Tensor):
        raise Damaged("a parameter without a tensor")
    return torch.nn.Parameter(data, requires_grad=data.is_floating_point() and bool(requires_grad))


def _rebuild_from_type(function: Name, kind: Name, arguments: tuple, state: Any) -> Any:
    if type(function) is not Name or not function.full.startswith("torch._utils._rebuild"):
        raise Refused("a tensor rebuilt by something else than torch's functions")
    return call(function, arguments)


def _ordered_dict(items: Any = ()) -> OrderedDict:
    if not isinstance(items, list | tuple):
        raise Damaged("an OrderedDict of something else than pairs")
    return OrderedDict((key, value) for key, value in items)


def _plain_dict(items: Any = ()) -> dict:
    return dict(items) if isinstance(items, dict) else dict(_ordered_dict(items))


def _default_dict(factory: Any = None, items: Any = ()) -> dict:
    return dict(_ordered_dict(items))


def _items(kind: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def make(items: Any = ()) -> Any:
        if not isinstance(items, list | tuple | set | frozenset):
            raise Damaged(f"a {kind.__name__} of a {type(items).__name__}")
        return kind(items)

    return make


def _encode(text: str, encoding: str = "latin1") -> bytes:
    if type(text) is not str or encoding not in ("latin1", "latin-1", "utf-8"):
        raise Damaged("bytes in an unknown encoding")
    return text.encode(encoding)


def _bytes(kind: type[bytes | bytearray]) -> Callable[..., bytes | bytearray]:
    def make(data: bytes | str = b"", encoding: str = "latin1") -> bytes | bytearray:
        raw = _encode(data, encoding) if isinstance(data, str) else data
        if not isinstance(raw, bytes | bytearray):
            raise Damaged("bytes of something else than bytes")
        return kind(raw)

    return make


def _complex(real: float, imaginary: float) -> complex:
    return complex(real, imaginary)


def _size(items: tuple) -> torch.Size:
    return torch.Size(int(n) for n in items)


def _device(kind: str, index: int | None = None) -> torch.device:
    return torch.device(str(kind)) if index is None else torch.device(str(kind), int(index))


def _reconstructor(kind: Name, base: Name, state: Any) -> Any:
    made = new(kind, ())
    if type(made) is Record and isinstance(state, dict):
        made.update(state)
    return made


def _new_object(kind: Name, *arguments: Any) -> Any:
    return new(kind, arguments)


def _method_of_record(owner: Any, name: Any) -> None:
    """Record objects may list their own methods; these become None."""
    if type(owner) is not Name or owner.full not in _RECORDS or type(name) is not str:
        raise Refused("builtins.getattr")


def _numpy_dtype(code: str, align: Any = False, copy: Any = True) -> np.dtype:
    if type(code) is not str or not _NUMPY_DTYPE.fullmatch(code):
        raise Refused(f"the NumPy type {code!r}")
    return np.dtype(code, False, True)  # a copy, so that build_dtype alters nothing shared


def _numpy_scalar(dtype: np.dtype, data: Any) -> Any:
    raw = _encode(data) if isinstance(data, str) else data
    if not isinstance(dtype, np.dtype) or not isinstance(raw, bytes):
        raise Damaged("a NumPy number without bytes")
    return np.frombuffer(raw, dtype=dtype, count=1)[0].item()


def _numpy_array(kind: Name, shape: tuple, code: Any) -> np.ndarray:
    return np.empty(0, dtype=np.int8)


def _numpy_from_buffer(data: Any, dtype: np.dtype, shape: tuple, order: str) -> np.ndarray:
    if not isinstance(dtype, np.dtype) or not isinstance(data, bytes | bytearray):
        raise Damaged("a NumPy array without bytes")
    return np.frombuffer(data, dtype=dtype).reshape(shape, order="F" if order == "F" else "C")


def build_dtype(target: np.dtype, state: Any) -> None:
    """Set the byte order of a NumPy type; named fields and subarrays are refused."""
    plain = (None, None, None)
    if type(state) is not tuple or len(state) != 8 or state[2:5] != plain or state[0] != 3:
        raise Refused("a structured NumPy type")
    size, alignment, flags = state[5:]
    if (
        state[1] not in ("<", ">", "=", "|")
        or size not in (-1, target.itemsize)
        or alignment not in (-1, target.alignment)
        or flags != target.flags
    ):
        raise Damaged("an impossible NumPy type")
    target.__setstate__(state)  # type: ignore[attr-defined]


def build_array(target: np.ndarray, state: Any) -> None:
    """Fill a NumPy array from its pickled state of (version, shape, type, order, bytes)."""
    if type(state) is not tuple or len(state) != 5 or not isinstance(state[2], np.dtype):
        raise Damaged("a NumPy array without a type")
    version, shape, dtype, fortran, data = state
    raw = _encode(data) if isinstance(data, str) else data
    if dtype.hasobject or not isinstance(raw, bytes):
        raise Refused("a NumPy array of objects")
    if version != 1 or type(shape) is not tuple or any(type(n) is not int or n < 0 for n in shape):
        raise Damaged("a NumPy array with an impossible shape")
    target.__setstate__((version, shape, dtype, bool(fortran), raw))  # type: ignore[arg-type]


_CALLS: dict[str, Callable[..., Any]] = {
    "torch._utils._rebuild_tensor": _rebuild_tensor,
    "torch._utils._rebuild_tensor_v2": _rebuild_tensor_v2,
    "torch._utils._rebuild_tensor_v3": _rebuild_tensor_v3,
    "torch._utils._rebuild_parameter": _rebuild_parameter,
    "torch._utils._rebuild_parameter_with_state": _rebuild_parameter,
    "torch._tensor._rebuild_from_type_v2": _rebuild_from_type,
    "torch.Size": _size,
    "torch.device": _device,
    "collections.OrderedDict": _ordered_dict,
    "collections.defaultdict": _default_dict,
    "builtins.set": _items(set),
    "builtins.frozenset": _items(frozenset),
    "builtins.list": _items(list),
    "builtins.tuple": _items(tuple),
    "builtins.dict": _plain_dict,
    "builtins.bytes": _bytes(bytes),
    "builtins.bytearray": _bytes(bytearray),
    "builtins.complex": _complex,
    "_codecs.encode": _encode,
    "builtins.getattr": _method_of_record,
    "copyreg._reconstructor": _reconstructor,
    "copyreg.__newobj__": _new_object,
    "numpy.dtype": _numpy_dtype,
    "numpy._core.multiarray.scalar": _numpy_scalar,
    "numpy._core.multiarray._reconstruct": _numpy_array,
    "numpy._core.numeric._frombuffer": _numpy_from_buffer,
}
# Names that only appear as arguments of the above.
_INERT = {"numpy.ndarray", "builtins.object", "torch.Tensor", "torch.nn.parameter.Parameter"} | {
    f"builtins.{name}" for name in ("int", "float", "str", "bool")
}


def _values() -> dict[str, Any]:
    values: dict[str, Any] = {f"torch.{name}": getattr(torch, name) for name in _DTYPES}
    for name, dtype in _STORAGES.items():
        values[f"torch.{name}Storage"] = values[f"torch.cuda.{name}Storage"] = StorageKind(dtype)
    values["torch.storage.UntypedStorage"] = StorageKind(None)
    return values


_VALUES = _values()


def resolve(module: str, name: str) -> Any:
    """What a global of the file stands for: an element type, a storage kind, or a `Name`."""
    for old, current in _PYTHON_2.items():
        if module == old or module.startswith(f"{old}."):
            module = current + module.removeprefix(old)
    full = f"{module}.{name}"
    if full in _VALUES:
        return _VALUES[full]
    if full in _CALLS or full in _RECORDS or full in _INERT:
        return Name(full)
    raise Refused(full)


def call(function: Any, arguments: Any) -> Any:
    """The result of a permitted name applied to ``arguments``."""
    if type(function) is not Name or type(arguments) is not tuple:
        raise Refused(f"a call of a {type(function).__name__}")
    if function.full in _RECORDS:
        return new(function, arguments)
    if function.full not in _CALLS:
        raise Refused(f"a call of {function.full}")
    return _CALLS[function.full](*arguments)


def new(kind: Any, arguments: Any) -> Any:
    """An empty object of a permitted class."""
    if type(kind) is not Name or type(arguments) is not tuple:
        raise Refused(f"an object of a {type(kind).__name__}")
    if kind.full in _RECORDS:
        record = Record(_RECORDS[kind.full])
        for argument in arguments:
            if isinstance(argument, dict):
                record.update(argument)
        return record
    if kind.full in ("collections.OrderedDict", "builtins.set", "builtins.dict", "builtins.list"):
        return _CALLS[kind.full](*arguments)
    raise Refused(f"an object of {kind.full}")
