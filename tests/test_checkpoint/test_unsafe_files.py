"""Files made to run code: each would write a sentinel, none may, and the culprit is named."""

from __future__ import annotations

import builtins
import collections
import io
import os
import pickle
import random
import struct
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
import torch

from polaformer.checkpoint import CheckpointError, UnsafeCheckpointError, read_checkpoint
from polaformer.checkpoint.restricted import Machine, Refused

FORMATS = pytest.mark.parametrize("zipped", [True, False], ids=["zip", "sequential"])


class Calls:
    """Pickles as a call of ``function``."""

    def __init__(self, function, *arguments, state=None):
        self.reduced = (function, arguments) if state is None else (function, arguments, state)

    def __reduce__(self):
        return self.reduced


def write_raw(path: Path, body: bytes, zipped: bool) -> None:
    """A file of torch's outer form around a hand-made pickle."""
    if zipped:
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("archive/data.pkl", body)
            archive.writestr("archive/version", "3\n")
        return
    magic = pickle.dumps(0x1950A86A20F9469CFC6C, 2)
    parts = [magic, pickle.dumps(1001, 2), pickle.dumps({}, 2), body, pickle.dumps([], 2)]
    path.write_bytes(b"".join(parts))


def refused(path: Path, sentinel: Path) -> str:
    with pytest.raises(CheckpointError) as caught:
        read_checkpoint(path)
    assert not sentinel.exists(), "the file ran code"
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.fixture
def sentinel(tmp_path) -> Path:
    return tmp_path / "it_ran"


def attacks(sentinel: Path) -> dict[str, tuple[object, str]]:
    touch = f"open({str(sentinel)!r}, 'w').close()"
    shell = f"touch {sentinel}"
    inner = io.BytesIO()
    torch.save(Calls(os.system, shell), inner)
    return {
        "system": (Calls(os.system, shell), "posix.system"),
        "eval": (Calls(builtins.eval, touch), "eval"),
        "exec": (Calls(builtins.exec, touch), "exec"),
        "import": (Calls(builtins.__import__, "os"), "__import__"),
        "getattr": (Calls(getattr, collections.OrderedDict, "fromkeys"), "getattr"),
        "torch_load": (Calls(torch.load, str(sentinel)), "torch.serialization.load"),
        "nested_bytes": (
            Calls(torch.storage._load_from_bytes, inner.getvalue()),
            "torch.storage._load_from_bytes",
        ),
        "hub": (Calls(torch.hub.load, "a/b", "c"), "torch.hub.load"),
        "torch_save": (Calls(torch.save, {}, str(sentinel)), "torch.serialization.save"),
        "open": (Calls(open, str(sentinel), "w"), "open"),
        "deep": ({"model": {"a": [{"b": (Calls(os.system, shell),)}]}}, "posix.system"),
        "as_key": ({("k", Calls(os.system, shell)): 1}, "posix.system"),
        "in_state": (
            Calls(collections.OrderedDict, state={"_metadata": Calls(os.system, shell)}),
            "posix.system",
        ),
    }


@FORMATS
@pytest.mark.parametrize("protocol", [2, 4, 5])
@pytest.mark.parametrize("name", sorted(attacks(Path("x"))))
def test_a_file_that_calls_something_is_refused(tmp_path, sentinel, name, protocol, zipped):
    attack, culprit = attacks(sentinel)[name]
    path = tmp_path / "evil.pth"
    torch.save(
        {"model": {"w": torch.ones(2)}, "x": attack},
        path,
        pickle_protocol=protocol,
        _use_new_zipfile_serialization=zipped,
    )
    message = refused(path, sentinel)
    assert culprit in message
    assert "safetensors.torch.save_file" in message


@FORMATS
@pytest.mark.parametrize("protocol", [0, 1])
def test_old_protocols_are_no_way_around(tmp_path, sentinel, protocol, zipped):
    path = tmp_path / "evil.pth"
    body = pickle.dumps({"x": Calls(os.system, f"touch {sentinel}")}, protocol)
    write_raw(path, body, zipped)
    assert "posix.system" in refused(path, sentinel)


def text(value: str) -> bytes:
    return b"X" + struct.pack("<I", len(value.encode())) + value.encode()


def hand_made(sentinel: Path) -> dict[str, bytes]:
    command = text(f"touch {sentinel}")
    yacs = b"cyacs.config\nCfgNode\n"
    return {
        # A permitted module with a dotted name that leads elsewhere.
        "dotted": b"\x80\x04"
        + text("torch")
        + text("serialization.load")
        + b"\x93"
        + command
        + b"\x85R.",
        "dotted_utils": b"\x80\x04"
        + text("torch._utils")
        + text("_rebuild_tensor.__globals__")
        + b"\x93.",
        "dotted_dict": b"\x80\x04"
        + text("collections")
        + text("OrderedDict.fromkeys")
        + b"\x93)R.",
        # INST and OBJ are other opcodes for a call.
        "inst": b"(" + command + b"ios\nsystem\n.",
        "obj": b"(cos\nsystem\n" + command + b"o.",
        # The extension registry names classes by number.
        "ext": b"\x80\x02\x82\x01.",
        # A call of what a permitted call returned.
        "nested_reduce": b"\x80\x02" + yacs + b")R" + command + b"\x85R.",
        "call_of_dict": b"\x80\x02}" + command + b"\x85R.",
        "call_of_text": b"\x80\x02" + text("os.system") + command + b"\x85R.",
        # Attributes set on a class or function that the table knows.
        "build_on_class": b"\x80\x02" + yacs + b"}" + text("__setstate__") + b"cos\nsystem\nsb.",
        "build_on_name": b"\x80\x02ctorch._utils\n_rebuild_tensor\n}" + text("__code__") + b"Nsb.",
        "build_slots": b"\x80\x02ccollections\nOrderedDict\nN}" + text("a") + b"Ns\x86b.",
        "new_of_function": b"\x80\x02ctorch._utils\n_rebuild_tensor\n)\x81.",
        "new_object_ex": b"\x80\x04" + yacs + b")}\x92.",
        # A record class with arguments of its own.
        "rebuild_from_type": b"\x80\x02ctorch._tensor\n_rebuild_from_type_v2\n(cos\nsystem\n"
        b"cbuiltins\nobject\n(" + command + b"tNtR.",
        "rebuild_by_record": b"\x80\x02ctorch._tensor\n_rebuild_from_type_v2\n("
        + yacs
        + yacs
        + b")NtR.",
        "default_factory": b"\x80\x02ccollections\ndefaultdict\ncos\nsystem\n\x85R.",
        "codecs_decode": b"\x80\x02c_codecs\ndecode\n" + command + text("rot13") + b"\x86R.",
        "codecs_encode": b"\x80\x02c_codecs\nencode\n" + command + text("rot13") + b"\x86R.",
        "persistent_module": b"\x80\x02(" + text("module") + yacs + b"NNNtQ.",
        "persistent_text": b"Psomething\n.",
        "numpy_object": b"\x80\x02cnumpy\ndtype\n" + text("O8") + b"\x89\x88\x87R.",
        "numpy_fields": b"\x80\x02cnumpy\ndtype\n" + text("i4, O") + b"\x89\x88\x87R.",
        "numpy_negative_shape": b"\x80\x02cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\n"
        b"K\x00\x85U\x01b\x87R(K\x01J\xff\xff\xff\xffJ\xf8\xff\xff\xff\x86cnumpy\ndtype\n"
        + text("i1")
        + b"\x89\x88\x87R\x89U\x0812345678tb.",
        "numpy_load": b"\x80\x02cnumpy\nload\n" + command + b"\x85R.",
        "stack_global_of_numbers": b"\x80\x04K\x01K\x02\x93.",
        "unknown_protocol": b"\x80\x09N.",
        "append_to_record": b"\x80\x02" + yacs + b")RNa.",
        "huge_tensor": b"\x80\x02ctorch._utils\n_rebuild_tensor_v2\n(("
        + text("storage")
        + b"ctorch\nFloatStorage\n"
        + text("0")
        + text("cpu")
        + b"J\xff\xff\xff\x7ftQK\x00K\x01\x85K\x01"
        b"\x85\x89}tR.",
    }


@FORMATS
@pytest.mark.parametrize("name", sorted(hand_made(Path("x"))))
def test_hand_made_pickles_are_refused(tmp_path, sentinel, name, zipped):
    path = tmp_path / "evil.pth"
    write_raw(path, hand_made(sentinel)[name], zipped)
    refused(path, sentinel)


def test_the_offending_name_and_the_way_out_are_stated(tmp_path, sentinel):
    path = tmp_path / "evil.pth"
    torch.save({"x": Calls(os.system, f"touch {sentinel}")}, path)
    with pytest.raises(UnsafeCheckpointError) as caught:
        read_checkpoint(path)
    assert "asks for posix.system" in str(caught.value)
    assert "keep its tensors only" in str(caught.value)


def test_a_configuration_class_cannot_bring_its_own_reduction(tmp_path, sentinel):
    """A CfgNode whose pickle carries a state that is a call, and one that sets a method."""
    body = (
        b"\x80\x02cyacs.config\nCfgNode\n)\x81}"
        + text("items")
        + b"cos\nsystem\n"
        + text(f"touch {sentinel}")
        + b"\x85Rsb."
    )
    write_raw(tmp_path / "a.pth", body, True)
    assert "os.system" in refused(tmp_path / "a.pth", sentinel)
    body = (
        b"\x80\x02}" + text("config") + b"cyacs.config\nCfgNode\n)\x81}" + text("update") + b"Nsbs."
    )
    write_raw(tmp_path / "b.pth", body, True)
    assert read_checkpoint(tmp_path / "b.pth") == {"config": {}}


def test_a_tensor_cannot_reach_beyond_its_storage(tmp_path):
    state = {"w": torch.arange(4.0), "c": complex(1, 2), "f": frozenset([1])}
    torch.save(state, tmp_path / "good.pth", pickle_protocol=4)
    source = zipfile.ZipFile(tmp_path / "good.pth")
    for old, new in ((b"K\x04\x85", b"K\x40\x85"), (b"K\x01\x85", b"K\x09\x85")):
        with zipfile.ZipFile(tmp_path / "bad.pth", "w") as archive:
            for name in source.namelist():
                data = source.read(name)
                if name.endswith("data.pkl"):
                    assert old in data
                    data = data.replace(old, new)
                archive.writestr(name, data)
        with pytest.raises(CheckpointError, match="reaches beyond its storage"):
            read_checkpoint(tmp_path / "bad.pth")


def test_the_machine_hands_out_no_live_object():
    """What a file can get at are texts, element types and values, never a class or function."""
    for name in (
        b"ctorch._utils\n_rebuild_tensor\n.",
        b"cyacs.config\nCfgNode\n.",
        b"cnumpy\ndtype\n.",
    ):
        value = Machine(None).run(io.BytesIO(name))
        assert not callable(value)
    with pytest.raises(Refused, match=r"os\.system"):
        Machine(None).run(io.BytesIO(b"cos\nsystem\n."))


MANY = 300_000
STALLS = {
    "deep_key": b"\x80\x02})" + b"\x85" * MANY + b"K\x01s.",
    "deep_value": b"\x80\x02}U\x01a)" + b"\x85" * MANY + b"s.",
    "deep_lists": b"\x80\x02}U\x01a" + b"]" * MANY + b"a" * (MANY - 1) + b"s.",
    "deep_lists_from_outside": b"\x80\x02}U\x01a]q\x00" + b"h\x00]q\x00a0" * MANY + b"s.",
    "doubled_key": b"\x80\x02})" + b"2\x86" * 60 + b"K\x01s.",
    "doubled_key_by_memo": b"\x80\x02})" + b"q\x00h\x00\x86" * 60 + b"K\x01s.",
    "doubled_in_items": b"\x80\x02}()" + b"2\x86" * 60 + b"K\x01u.",
    "doubled_in_dict": b"\x80\x02()" + b"2\x86" * 60 + b"K\x01d.",
    "doubled_in_set": b"\x80\x02}U\x01acbuiltins\nset\n](" + b")" + b"2\x86" * 60 + b"e\x85Rs.",
    "doubled_in_ordered_dict": b"\x80\x02ccollections\nOrderedDict\n](]()"
    + b"2\x86" * 60
    + b"K\x01ee\x85R.",
    "doubled_in_frozenset": b"\x80\x04}\x8c\x01a()" + b"2\x86" * 60 + b"\x91s.",
    "doubled_value": b"\x80\x02}U\x01a]q\x00" + b"h\x00]q\x00ah\x00a0" * 60 + b"s.",
    "contains_itself": b"\x80\x02}q\x00U\x01ah\x00s.",
}


@FORMATS
def test_nesting_that_would_crash_or_stall_is_refused(tmp_path, zipped):
    """In a process of its own: what is tested for would end this one, or never end."""
    for name, body in STALLS.items():
        write_raw(tmp_path / name, body, zipped)
    program = (
        "import sys\n"
        "from polaformer.checkpoint import CheckpointError, find_state, read_checkpoint\n"
        "for path in sys.argv[1:]:\n"
        "    try:\n"
        "        find_state(read_checkpoint(path))\n"
        "    except CheckpointError as error:\n"
        "        print(error, flush=True)\n"
    )
    paths = [str(tmp_path / name) for name in STALLS]
    done = subprocess.run(
        [sys.executable, "-c", program, *paths], capture_output=True, text=True, timeout=100
    )
    told = done.stdout.splitlines()
    assert [line.partition(" is refused: ")[0] for line in told] == paths
    assert done.returncode == 0


@FORMATS
def test_usual_nesting_is_read(tmp_path, zipped):
    """Shared parts, keys of several values, the state of Python's generator, nested settings."""
    shared = {"betas": (0.9, 0.999), "list": [1, 2]}
    deep: object = 1
    for _ in range(50):
        deep = {"a": [deep]}
    content = {
        "model": {"w": torch.ones(2)},
        ("a", ("b", 1)): 1,
        "groups": [shared] * 1000,
        "random": random.getstate(),
        "long": tuple(range(30_000)),
        "deep": deep,
    }
    path = tmp_path / "usual.pth"
    torch.save(content, path, _use_new_zipfile_serialization=zipped)
    read = read_checkpoint(path)
    read["model"] = content["model"]
    assert read == content
