"""Refuse files whose data are nested absurdly, before and after they are loaded.

Python hashes a tuple by hashing all that it holds, without a limit of depth and once for every
place where a shared part appears. A small crafted file can so crash a loader by its depth, or keep
it busy for ever by a tuple of two times a tuple of two times ... as a key. Real files hold a few
levels, and keys that are texts, numbers or short tuples.
"""

from __future__ import annotations

import io
import pickletools
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

from polaformer.checkpoint.errors import CheckpointError

MAX_DEPTH = 200
MAX_KEY = 10_000
"""Values in a key, those of shared parts counted at each place."""
MAX_VALUES = 10**8
"""Values in a whole file, counted likewise."""
_CAP = 10**12

_GETS = frozenset(["GET", "BINGET", "LONG_BINGET"])
_PUTS = frozenset(["PUT", "BINPUT", "LONG_BINPUT"])
_FILLS = frozenset(["APPEND", "APPENDS", "SETITEM", "SETITEMS", "ADDITEMS", "BUILD"])
_EVERY_SECOND = frozenset(["SETITEM", "SETITEMS", "DICT"])
_ALL_HASHED = frozenset(["ADDITEMS", "FROZENSET", "REDUCE", "NEWOBJ", "NEWOBJ_EX", "INST", "OBJ"])
_OUTER = (pickletools.markobject, pickletools.stackslice)


class _Nested(Exception):
    """The text says what is too deep or too large."""


def check_nesting(path: Path, zipped: bool) -> bool:
    """Whether the pickles of a `torch.save` file are well formed.

    Raises `CheckpointError` if loading them could crash or never end.
    """
    try:
        (_scan_archive if zipped else _scan_sequence)(path)
    except _Nested as error:
        raise CheckpointError(f"{path} is refused: {error}") from None
    except Exception:  # a damaged file can be wrong in any way; the reader that follows says how
        return False
    return True


def _scan_archive(path: Path) -> None:
    with zipfile.ZipFile(path) as archive:
        for info in archive.infolist():
            if info.filename.lower().endswith("data.pkl"):
                _Scan().run(io.BytesIO(archive.read(info)))


def _scan_sequence(path: Path) -> None:
    """Magic number, protocol, system, content, and names of the storages that follow."""
    with path.open("rb") as stream:
        for _ in range(5):
            _Scan().run(stream)


class _Scan:
    """A pickle machine that builds nothing but [depth, values to hash] of each object.

    Of a tuple these are exact. A list or dict cannot be hashed; it stands for the worst item in it,
    because a call may turn its items into keys.
    """

    def __init__(self) -> None:
        self.stack: list[list[int]] = []
        self.marks: list[int] = []
        self.memo: dict[Any, list[int]] = {}

    def run(self, stream: IO[bytes]) -> None:
        stack, memo = self.stack, self.memo
        for opcode, argument, _ in pickletools.genops(stream):
            name = opcode.name
            if name in _PUTS:
                memo[argument] = stack[-1]
            elif name == "MEMOIZE":
                memo[len(memo)] = stack[-1]
            elif name in _GETS:
                stack.append(memo[argument])
            elif name == "DUP":
                stack.append(stack[-1])
            elif name == "MARK":
                self.marks.append(len(stack))
            elif name == "POP" and self.marks and self.marks[-1] == len(stack):
                self.marks.pop()
            elif opcode.stack_before:
                self._build(opcode)
            elif opcode.stack_after:
                stack.append([0, 1])

    def _build(self, opcode: pickletools.OpcodeInfo) -> None:
        """Take what the opcode takes from the stack, and put there what it makes of it."""
        stack, name = self.stack, opcode.name
        items: list[list[int]] = []
        if pickletools.stackslice in opcode.stack_before:
            start = self.marks.pop()
            items = stack[start:]
            del stack[start:]
        single = sum(kind not in _OUTER for kind in opcode.stack_before)
        if single:
            if len(stack) < single:
                raise ValueError("its pickle takes more than is there")
            items = stack[-single:] + items
            del stack[-single:]
        target = items.pop(0) if name in _FILLS else None
        hashed = items[::2] if name in _EVERY_SECOND else items if name in _ALL_HASHED else []
        if any(values > MAX_KEY for _, values in hashed):
            raise _Nested(f"a key or a call in it holds more than {MAX_KEY} values")
        if not opcode.stack_after:
            return
        depth = 1 + max((depth for depth, _ in items), default=0)
        if depth > MAX_DEPTH:
            raise _Nested(f"its data are nested more than {MAX_DEPTH} levels deep")
        if target is not None:
            target[:] = max(target[0], depth), max([target[1], *(v for _, v in items)])
            stack.append(target)
        elif name in ("LIST", "DICT"):
            stack.append([depth, max((v for _, v in items), default=1)])
        else:
            stack.append([depth, min(_CAP, 1 + sum(v for _, v in items))])


def check_tree(root: Any, path: Path) -> None:
    """Raise `CheckpointError` if walking through the loaded ``root`` would never end."""
    sizes: dict[int, int] = {}
    above: set[int] = set()
    todo: list[tuple[Any, bool]] = [(root, False)]
    while todo:
        node, seen = todo.pop()
        children = _children(node)
        if seen:
            above.discard(id(node))
            sizes[id(node)] = 1 + sum(sizes[id(child)] for child in children) + len(node)
            if sizes[id(node)] > MAX_VALUES:
                raise CheckpointError(f"{path} is refused: its parts are repeated without end")
        elif id(node) in above:
            raise CheckpointError(f"{path} is refused: a part of it contains itself")
        elif id(node) not in sizes:
            above.add(id(node))
            if len(above) > MAX_DEPTH:
                raise CheckpointError(f"{path} is refused: more than {MAX_DEPTH} levels deep")
            todo.append((node, True))
            todo += [(child, False) for child in children]


def _children(node: Any) -> list[Any]:
    values = node.values() if isinstance(node, Mapping) else node
    return [v for v in values if isinstance(v, Mapping | list | tuple)]
