"""Writing whole files only, and finding the newest that is whole."""

from __future__ import annotations

import collections
import enum
import errno
import io
import os
import signal
import socket
import stat
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch

from polaformer.checkpoint import (
    CheckpointError,
    newest_valid,
    read_checkpoint,
    write_checkpoint,
    writing,
)


def checkpoint(epoch: int) -> dict:
    return {"state_dict": {"layer.weight": torch.full((64, 64), float(epoch))}, "epoch": epoch}


def everything() -> dict:
    state = torch.nn.Linear(2, 2).state_dict()  # an OrderedDict with attributes
    return {
        "state_dict": state,
        "numbers": [1, -(2**40), 1.5, True, None, complex(1, 2)],
        "texts": ("é", ""),
        "set": {1, 2},
        "counter": collections.Counter("aab"),
        "bytes": bytearray(b"\x00\xff"),
        "torch": [
            torch.float16,
            torch.Size([2]),
            torch.device("cpu"),
            torch.nn.Parameter(torch.ones(1)),
        ],
        "rng": torch.get_rng_state(),
        3: {"nested": {}},
    }


def test_what_is_written_is_read_by_the_safe_loader(tmp_path):
    path = tmp_path / "new" / "folder" / "epoch_1.pth"
    write_checkpoint(everything(), path)
    read = torch.load(path, weights_only=True)
    assert read["numbers"] == everything()["numbers"]
    assert read["counter"] == {"a": 2, "b": 1}
    assert read["bytes"] == b"\x00\xff"
    assert read[3] == {"nested": {}}
    assert list(path.parent.iterdir()) == [path]
    mask = os.umask(0)
    os.umask(mask)
    assert stat.S_IMODE(path.stat().st_mode) == 0o666 & ~mask


class Colour(enum.IntEnum):
    RED = 1


class Custom:
    pass


def contains_itself() -> list:
    items: list = []
    items.append(items)
    return items


UNSAFE = {
    "message_hub.history.loss": ({"message_hub": {"history": {"loss": Custom()}}}, "Custom"),
    "best": ({"best": np.float64(1.0)}, "numpy.float64"),
    "meta.rng[1]": ({"meta": {"rng": ("MT19937", np.zeros(2))}}, "numpy.ndarray"),
    "colour": ({"colour": Colour.RED}, "Colour"),
    "path": ({"path": Path("x")}, "pathlib"),
    "raw": ({"raw": b""}, "bytes"),
    "fixed": ({"fixed": frozenset([1])}, "frozenset"),
    "call": ({"call": len}, "builtin_function_or_method"),
    "logs['a b'][0]": ({"logs": {"a b": [object()]}}, "object"),
    "a key of scores": ({"scores": {np.int64(3): 1}}, "numpy.int64"),
    "default": ({"default": collections.defaultdict(list)}, "defaultdict"),
    "loop[0]": ({"loop": contains_itself()}, "contains itself"),
}


@pytest.mark.parametrize("place", UNSAFE)
def test_an_object_that_could_not_be_read_is_named_before_writing(tmp_path, place):
    obj, kind = UNSAFE[place]
    path = tmp_path / "epoch_1.pth"
    write_checkpoint(checkpoint(1), path)
    before = path.read_bytes()
    with pytest.raises(CheckpointError) as caught:
        write_checkpoint(obj, path)
    assert f": {place} is a" in str(caught.value)
    assert kind in str(caught.value)
    assert path.read_bytes() == before
    assert os.listdir(tmp_path) == ["epoch_1.pth"]


def test_attributes_of_an_ordered_dict_are_checked_too(tmp_path):
    state = torch.nn.Linear(2, 2).state_dict()
    state._metadata["x"] = Custom()
    with pytest.raises(CheckpointError, match=r"state_dict\._metadata\.x is a"):
        write_checkpoint({"state_dict": state}, tmp_path / "a.pth")


def test_safetensors_by_suffix(tmp_path):
    base = torch.arange(6.0).reshape(2, 3)
    path = tmp_path / "w.safetensors"
    write_checkpoint({"whole": base, "turned": base.t(), "part": base[1]}, path)
    read = read_checkpoint(path)
    assert torch.equal(read["turned"], base.t())
    assert torch.equal(read["part"], base[1])
    with pytest.raises(CheckpointError, match="epoch is a int, only tensors fit"):
        write_checkpoint({"epoch": 1}, path)
    with pytest.raises(CheckpointError, match="flat dict of tensors"):
        write_checkpoint([1], path)


@pytest.mark.parametrize("step", ["save", "fsync", "replace"])
def test_a_full_disk_leaves_the_earlier_file(tmp_path, monkeypatch, step):
    path = tmp_path / "epoch_1.pth"
    write_checkpoint(checkpoint(1), path)
    before = path.read_bytes()

    def fail(*_args, **_kwargs):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    if step == "save":
        real = torch.save

        def half(obj, stream):
            stream.write(b"half a file")
            fail(real)

        monkeypatch.setattr(writing.torch, "save", half)
    else:
        monkeypatch.setattr(writing.os, step, fail)
    with pytest.raises(CheckpointError) as caught:
        write_checkpoint(checkpoint(2), path)
    monkeypatch.undo()
    assert str(caught.value) == f"cannot write {path}: No space left on device"
    assert path.read_bytes() == before
    assert os.listdir(tmp_path) == ["epoch_1.pth"]


class SmallDisk(io.FileIO):
    """Takes the first 1000 bytes, then nothing large: the rest of a buffer may still fit."""

    def write(self, data):
        if self.tell() + len(data) > 1000:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return super().write(data)


def test_a_disk_that_is_full_for_torch_itself(tmp_path, monkeypatch):
    """torch tells a failing stream as a position that it did not expect; the disk's word counts."""

    def open_small(self, mode="r", *args, **kwargs):
        return io.BufferedWriter(SmallDisk(self, mode), 64)

    path = tmp_path / "epoch_1.pth"
    monkeypatch.setattr(Path, "open", open_small)
    with pytest.raises(CheckpointError) as caught:
        write_checkpoint({"w": torch.zeros(10**6)}, path)
    assert str(caught.value) == f"cannot write {path}: No space left on device"
    assert os.listdir(tmp_path) == []


def test_a_folder_that_cannot_be_made(tmp_path):
    (tmp_path / "file").write_text("x")
    with pytest.raises(CheckpointError, match=r"cannot write .*file/epoch_1\.pth"):
        write_checkpoint(checkpoint(1), tmp_path / "file" / "epoch_1.pth")


def test_killed_while_writing(tmp_path):
    """SIGKILL between writing and renaming: the earlier file is whole, the next write tidies up."""
    path = tmp_path / "epoch_1.pth"
    write_checkpoint(checkpoint(1), path)
    code = (
        "import os, signal, torch\n"
        "from polaformer.checkpoint import writing\n"
        "writing.os.replace = lambda *a: os.kill(os.getpid(), signal.SIGKILL)\n"
        f"writing.write_checkpoint({{'epoch': 2}}, {str(path)!r})\n"
    )
    result = subprocess.run([sys.executable, "-c", code], check=False, timeout=120)
    assert result.returncode == -signal.SIGKILL
    assert read_checkpoint(path)["epoch"] == 1
    assert len(os.listdir(tmp_path)) == 2
    assert newest_valid(tmp_path) == (path, [])
    alive = f".epoch_9.pth.{socket.gethostname()}-{os.getpid()}.tmp"
    other = [".a.txt.tmp", alive, ".b.another-host-999999999.tmp"]
    for name in other:
        (tmp_path / name).touch()
    write_checkpoint(checkpoint(2), tmp_path / "epoch_2.pth")
    assert sorted(os.listdir(tmp_path)) == sorted([*other, "epoch_1.pth", "epoch_2.pth"])


def run_folder(folder: Path, names: list[str], last: str | None) -> None:
    for i, name in enumerate(names):
        write_checkpoint(checkpoint(i + 1), folder / name)
        os.utime(folder / name, ns=(0, (i + 1) * 10**9))
    if last is not None:
        (folder / "last_checkpoint").write_text(last)


def cut(path: Path) -> None:
    data, stamp = path.read_bytes(), path.stat().st_mtime_ns
    path.write_bytes(data[: len(data) // 2])
    os.utime(path, ns=(0, stamp))


def test_a_broken_newest_checkpoint_is_passed_over_and_kept(tmp_path):
    run_folder(tmp_path, ["epoch_1.pth", "epoch_2.pth", "epoch_3.pth"], "/gone/run/epoch_3.pth\n")
    assert newest_valid(tmp_path) == (tmp_path / "epoch_3.pth", [])
    cut(tmp_path / "epoch_3.pth")
    path, bad = newest_valid(tmp_path)
    assert path == tmp_path / "epoch_2.pth"
    assert [name for name, _ in bad] == [tmp_path / "epoch_3.pth"]
    assert "cut short or damaged" in bad[0][1]
    assert (tmp_path / "epoch_3.pth").exists()


def test_numbers_are_compared_as_numbers_without_a_pointer(tmp_path):
    run_folder(tmp_path, ["epoch_2.pth", "epoch_10.pth", "best_top1_epoch_99.pth"], None)
    assert newest_valid(tmp_path)[0] == tmp_path / "epoch_10.pth"


def test_iterations(tmp_path):
    run_folder(tmp_path, ["iter_6.pth", "iter_12.pth"], "iter_12.pth")
    assert newest_valid(tmp_path)[0] == tmp_path / "iter_12.pth"


def test_a_file_newer_than_the_pointer_wins(tmp_path):
    """The process died between the checkpoint and the pointer."""
    run_folder(tmp_path, ["epoch_1.pth", "epoch_2.pth"], "epoch_1.pth")
    assert newest_valid(tmp_path)[0] == tmp_path / "epoch_2.pth"


def test_files_of_an_earlier_longer_run_do_not_win(tmp_path):
    run_folder(tmp_path, ["epoch_300.pth", "epoch_1.pth", "epoch_2.pth"], "epoch_2.pth")
    assert newest_valid(tmp_path)[0] == tmp_path / "epoch_2.pth"
    cut(tmp_path / "epoch_2.pth")
    assert newest_valid(tmp_path)[0] == tmp_path / "epoch_1.pth"


def test_a_pointer_to_nothing_is_reported(tmp_path):
    run_folder(tmp_path, ["epoch_1.pth"], "C:\\runs\\a\\epoch_2.pth")
    path, bad = newest_valid(tmp_path)
    assert path == tmp_path / "epoch_1.pth"
    assert bad[0][0] == tmp_path / "epoch_2.pth"
    assert "does not exist" in bad[0][1]


def test_flipped_bits_inside_are_found(tmp_path):
    run_folder(tmp_path, ["epoch_1.pth", "epoch_2.pth"], None)
    path = tmp_path / "epoch_2.pth"
    data = bytearray(path.read_bytes())
    middle = data.index(torch.full((4,), 2.0).numpy().tobytes()) + 100
    data[middle] ^= 0xFF
    path.write_bytes(data)
    found, bad = newest_valid(tmp_path)
    assert found == tmp_path / "epoch_1.pth"
    assert "damaged" in bad[0][1]


def test_nothing_there(tmp_path):
    assert newest_valid(tmp_path) == (None, [])
    assert newest_valid(tmp_path / "none") == (None, [])
    write_checkpoint({"epoch": 1}, tmp_path / "epoch_1.pth")  # no weights
    path, bad = newest_valid(tmp_path)
    assert path is None
    assert "no weights found" in bad[0][1]


def test_writing_replaces_in_one_step(tmp_path):
    """A reader that opens the name at any time finds a whole file of one of the versions."""
    path = tmp_path / "epoch_1.pth"
    write_checkpoint(checkpoint(0), path)
    code = (
        "import torch\nfrom polaformer.checkpoint import write_checkpoint\n"
        "for i in range(10):\n"
        "    write_checkpoint({'state_dict': {'layer.weight': torch.full((64, 64), float(i))},"
        f" 'epoch': i}}, {str(path)!r})\n"
    )
    writer = subprocess.Popen([sys.executable, "-c", code])
    deadline = time.monotonic() + 120
    reads = 0
    while writer.poll() is None and time.monotonic() < deadline:
        read = read_checkpoint(path)
        assert read["state_dict"]["layer.weight"].unique().tolist() == [read["epoch"]]
        reads += 1
    assert writer.wait(timeout=10) == 0
    assert reads > 0
