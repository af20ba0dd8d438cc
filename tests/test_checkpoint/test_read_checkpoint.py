"""Every file that may be given as weights: read, or named for what it is in one line."""

from __future__ import annotations

import argparse
import collections
import sys
import types
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from polaformer.checkpoint import CheckpointError, UnsafeCheckpointError, read_checkpoint
from polaformer.checkpoint import io as checkpoint_io

FORMATS = pytest.mark.parametrize("zipped", [True, False], ids=["zip", "sequential"])


class CfgNode(dict):
    """Pickles as yacs does: a dict subclass with settings in its attributes."""

    def __init__(self, items: dict) -> None:
        super().__init__(items)
        self.__dict__["__immutable__"] = True


@pytest.fixture
def yacs_class(monkeypatch):
    """A CfgNode under yacs' name while writing; the module is gone again while reading."""

    def save(obj, path: Path, **options) -> None:
        module = types.ModuleType("yacs.config")
        module.CfgNode = CfgNode
        monkeypatch.setattr(CfgNode, "__module__", "yacs.config")
        monkeypatch.setitem(sys.modules, "yacs.config", module)
        monkeypatch.setitem(sys.modules, "yacs", types.ModuleType("yacs"))
        torch.save(obj, path, **options)
        monkeypatch.undo()
        assert "yacs.config" not in sys.modules

    return save


def tensors() -> dict[str, torch.Tensor]:
    torch.manual_seed(0)
    base = torch.arange(12.0)
    return {
        "float32": torch.randn(3, 4),
        "float64": torch.randn(2, dtype=torch.float64),
        "bfloat16": torch.randn(5).bfloat16(),
        "float16": torch.randn(5).half(),
        "int64": torch.tensor([2**40, -1]),
        "bool": torch.tensor([True, False]),
        "scalar": torch.tensor(3.5),
        "empty": torch.zeros(0, 3),
        "view": base.view(3, 4).t(),
        "tail": base[7:],
    }


def same(left: torch.Tensor, right: torch.Tensor) -> bool:
    return left.dtype == right.dtype and torch.equal(left, right)


@FORMATS
@pytest.mark.parametrize("protocol", [1, 2, 3, 4, 5])
def test_official_layout_with_a_yacs_configuration(tmp_path, yacs_class, zipped, protocol):
    state = tensors()
    inner = CfgNode({"TYPE": "pola_swin", "DEPTHS": [2, 2, 6, 2], "LR": 5e-4})
    checkpoint = {
        "model": collections.OrderedDict(state),
        "optimizer": {"state": {0: {"step": 3, "exp_avg": torch.ones(2)}}, "param_groups": [{}]},
        "max_accuracy": np.float64(82.6),
        "epoch": 299,
        "config": CfgNode({"MODEL": inner, "TAGS": {"a", "b"}, "SIZE": (224, 224), "NONE": None}),
    }
    path = tmp_path / "ckpt.pth"
    yacs_class(checkpoint, path, pickle_protocol=protocol, _use_new_zipfile_serialization=zipped)

    read = read_checkpoint(path)

    assert read["model"].keys() == state.keys()
    assert all(same(read["model"][key], value) for key, value in state.items())
    assert read["config"]["MODEL"] == {"TYPE": "pola_swin", "DEPTHS": [2, 2, 6, 2], "LR": 5e-4}
    assert read["config"]["TAGS"] == {"a", "b"}
    assert read["config"]["SIZE"] == (224, 224)
    assert isinstance(read["config"], dict)
    assert type(read["config"]).__name__ != "CfgNode"
    assert read["max_accuracy"] == 82.6
    assert read["epoch"] == 299
    assert torch.equal(read["optimizer"]["state"][0]["exp_avg"], torch.ones(2))


@FORMATS
def test_shared_storage_stays_shared_and_parameters_survive(tmp_path, yacs_class, zipped):
    base = torch.arange(6.0)
    checkpoint = {
        "model": {"whole": base, "part": base[2:4], "p": torch.nn.Parameter(torch.ones(2))},
        "config": CfgNode({}),
    }
    path = tmp_path / "ckpt.pth"
    yacs_class(checkpoint, path, _use_new_zipfile_serialization=zipped)
    model = read_checkpoint(path)["model"]
    model["whole"][3] = 100.0
    assert model["part"].tolist() == [2.0, 100.0]
    assert model["p"].detach().tolist() == [1.0, 1.0]


@FORMATS
def test_numpy_values_and_namespaces_become_plain(tmp_path, zipped):
    checkpoint = {
        "model": {"w": torch.ones(1)},
        "args": argparse.Namespace(lr=0.1, model="deit_small", sizes=[1, 2]),
        "best": np.float32(0.5),
        "step": np.int64(7),
        "flag": np.bool_(True),
        "curve": np.arange(6, dtype=np.float32).reshape(2, 3),
        "fortran": np.asfortranarray(np.arange(6).reshape(2, 3)),
        "names": np.array(["ab", "c"]),
        "log": collections.defaultdict(list, {"loss": [1.0]}),
    }
    path = tmp_path / "ckpt.pth"
    torch.save(checkpoint, path, _use_new_zipfile_serialization=zipped)
    read = read_checkpoint(path)
    assert read["args"] == {"lr": 0.1, "model": "deit_small", "sizes": [1, 2]}
    assert (read["best"], read["step"], read["flag"]) == (0.5, 7, True)
    assert read["curve"].tolist() == [[0, 1, 2], [3, 4, 5]]
    assert read["fortran"].tolist() == [[0, 1, 2], [3, 4, 5]]
    assert read["names"].tolist() == ["ab", "c"]
    assert read["log"] == {"loss": [1.0]}


def test_mmengine_history_becomes_plain(tmp_path):
    history = pytest.importorskip("mmengine.logging").HistoryBuffer([1.0, 0.5], [1, 1])
    torch.save({"state_dict": {"w": torch.ones(1)}, "log": history}, tmp_path / "epoch_1.pth")
    read = read_checkpoint(tmp_path / "epoch_1.pth")
    assert read["log"]["_log_history"].tolist() == [1.0, 0.5]


def test_weights_only_files_and_safetensors(tmp_path):
    state = tensors()
    torch.save(state, tmp_path / "a.bin")
    read = read_checkpoint(tmp_path / "a.bin")
    assert all(same(read[key], value) for key, value in state.items())
    save_file({"w": torch.ones(2).bfloat16()}, tmp_path / "b.safetensors")
    assert same(read_checkpoint(tmp_path / "b.safetensors")["w"], torch.ones(2).bfloat16())
    (tmp_path / "b.safetensors").rename(tmp_path / "c.pth")  # the content decides, not the suffix
    assert same(read_checkpoint(str(tmp_path / "c.pth"))["w"], torch.ones(2).bfloat16())


def _zip_of_text(path: Path) -> None:
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("readme.txt", "hello")


WRONG_FILES = {
    "empty": (b"", "is empty (0 bytes)"),
    "html": (b"\n<!DOCTYPE html><html>404</html>", "is a web page (HTML)"),
    "lfs": (b"version https://git-lfs.github.com/spec/v1\noid sha256:ab\n", "Git LFS pointer"),
    "text": (b"epoch loss\n1 0.5\n", "is a text file (it begins with 'epoch loss')"),
    "utf8": ("é".encode() * 400, "is a text file"),
    "gzip": (b"\x1f\x8b\x08\x00rest", "gzip archive"),
    "random": (bytes(range(200, 256)), "is not a weight file (it begins with c8 c9 ca cb)"),
    "one_byte": (b"\x80", "is not a weight file"),
    "safetensors_cut": ((500).to_bytes(8, "little") + b'{"w":', "is damaged"),
    "plain_pickle": (b"\x80\x02}q\x00.", "a Python pickle that torch.save did not write"),
    "pickle_cut": (b"\x80\x02}q\x00X\x05\x00", "is damaged"),
}


@pytest.mark.parametrize("name", WRONG_FILES)
def test_a_wrong_file_is_named_in_one_line(tmp_path, name):
    content, expected = WRONG_FILES[name]
    path = tmp_path / f"{name}.pth"
    path.write_bytes(content)
    with pytest.raises(CheckpointError) as caught:
        read_checkpoint(path)
    message = str(caught.value)
    assert expected in message
    assert str(path) in message
    assert "\n" not in message


def test_missing_folder_link_address_and_foreign_zip(tmp_path):
    with pytest.raises(CheckpointError, match=r"x\.pth does not exist"):
        read_checkpoint(tmp_path / "x.pth")
    with pytest.raises(CheckpointError, match="is a folder"):
        read_checkpoint(tmp_path)
    (tmp_path / "link.pth").symlink_to(tmp_path / "gone.pth")
    with pytest.raises(CheckpointError, match="broken link"):
        read_checkpoint(tmp_path / "link.pth")
    with pytest.raises(CheckpointError, match="is a web address"):
        read_checkpoint("https://example.org/pola.pth")
    _zip_of_text(tmp_path / "z.pth")
    with pytest.raises(CheckpointError, match=r"zip archive that torch\.save did not write"):
        read_checkpoint(tmp_path / "z.pth")


@pytest.mark.parametrize("share", [0.02, 0.5, 0.99])
@FORMATS
def test_a_truncated_file_is_refused_at_any_length(tmp_path, yacs_class, zipped, share):
    plain, official = tmp_path / "plain.pth", tmp_path / "official.pth"
    torch.save(tensors(), plain, _use_new_zipfile_serialization=zipped)
    yacs_class(
        {"model": tensors(), "config": CfgNode({})}, official, _use_new_zipfile_serialization=zipped
    )
    for path in (plain, official):
        data = path.read_bytes()
        path.write_bytes(data[: int(len(data) * share)])
        with pytest.raises(CheckpointError) as caught:
            read_checkpoint(path)
        assert not isinstance(caught.value, UnsafeCheckpointError)
        assert "\n" not in str(caught.value)


def test_torchscript_is_refused(tmp_path):
    path = tmp_path / "script.pt"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("m/data.pkl", b"\x80\x02}q\x00.")
        archive.writestr("m/constants.pkl", b"\x80\x02).")
    with pytest.raises(CheckpointError, match="TorchScript archive, which holds code"):
        read_checkpoint(path)


def test_something_else_than_a_dict_is_refused(tmp_path):
    torch.save([torch.ones(1)], tmp_path / "list.pth")
    with pytest.raises(CheckpointError, match="holds a list, not a dict"):
        read_checkpoint(tmp_path / "list.pth")


def test_torch_load_is_called_in_one_place_and_only_safely():
    package = Path(checkpoint_io.__file__).parents[1]
    calls = {
        path.relative_to(package).as_posix(): path.read_text().count("torch.load(")
        for path in package.rglob("*.py")
        if "torch.load(" in path.read_text()
    }
    # writing.py names the call in a docstring, restricted.py never needs it.
    assert set(calls) <= {"checkpoint/io.py", "checkpoint/writing.py"}
    assert "weights_only=False" not in Path(checkpoint_io.__file__).read_text()
    assert "weights_only=True" in Path(checkpoint_io.__file__).read_text()
