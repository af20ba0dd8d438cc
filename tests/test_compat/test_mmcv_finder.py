"""mmcv's compiled extension is supplied in every process, and only where there is none."""

from __future__ import annotations

import importlib.util
import multiprocessing
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import polaformer
from polaformer.compat.mmcv_ops import NAME, finder
from polaformer.errors import UserError

pytest.importorskip("mmcv")


def run_python(code, *, path=None, expect=0):
    """Run ``code`` in a fresh interpreter outside the repository's folder of tests."""
    env = {**os.environ, "OMP_NUM_THREADS": "1"}
    if path is not None:
        env["PYTHONPATH"] = os.pathsep.join([str(path), env.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=env,
        cwd=Path(polaformer.__file__).parents[1],
        capture_output=True,
        text=True,
    )
    assert done.returncode == expect, done.stderr
    return done.stdout + done.stderr


def test_importing_polaformer_stays_light():
    heavy = {"torch", "numpy", "mmengine", "mmcv", "torchvision", "multiprocessing"}
    loaded = run_python("import sys, polaformer; print(*{n.split('.')[0] for n in sys.modules})")
    assert not heavy & set(loaded.split())


def test_installing_again_changes_nothing():
    before = list(sys.meta_path)
    finder.install()
    assert sys.meta_path == before


def test_only_the_extension_is_found():
    found = finder.ExtensionFinder()
    assert found.find_spec(NAME) is not None
    assert found.find_spec("mmcv._ext.more") is None
    assert found.find_spec("_ext") is None
    assert importlib.util.find_spec("mmcv.no_such_module") is None


def test_every_name_that_mmcv_asks_for_is_there():
    import mmcv.ops

    extension = importlib.import_module(NAME)
    folder = Path(mmcv.ops.__file__).parent
    text = "\n".join(path.read_text() for path in folder.glob("*.py"))
    lists = re.findall(r"load_ext\(\s*'_ext',\s*\[(.*?)\]", text, re.S)
    names = {name for found in lists for name in re.findall(r"'(\w+)'", found)}
    assert len(names) > 100
    assert all(callable(getattr(extension, name)) for name in names)


def test_an_operation_without_a_stand_in_says_so():
    import torch
    from mmcv.ops import nms_rotated

    with pytest.raises(UserError, match=r"'nms_rotated' is not here.*supplies nms, .*mmcv 2\.1"):
        nms_rotated(torch.rand(2, 5), torch.rand(2), 0.5)


def test_special_names_are_not_invented():
    import mmcv.ops  # noqa: F401

    extension = importlib.import_module(NAME)
    assert not hasattr(extension, "__file__")
    assert not hasattr(extension, "_anything")


def test_versions_for_the_environment_report():
    import torch
    from mmcv.ops import get_compiler_version, get_compiling_cuda_version

    assert "polaformer" in get_compiler_version()
    assert get_compiling_cuda_version() == (torch.version.cuda or "not available")


def test_a_compiled_extension_is_preferred(tmp_path):
    (tmp_path / "mmcv").mkdir()
    (tmp_path / "mmcv" / "__init__.py").touch()
    (tmp_path / "mmcv" / "_ext.py").write_text("compiled = True\n")
    code = "import polaformer, mmcv._ext as ext; print(ext.compiled, ext.__file__)"
    assert run_python(code, path=tmp_path).split() == ["True", str(tmp_path / "mmcv" / "_ext.py")]


def test_without_mmcv_nothing_is_supplied(tmp_path):
    code = (
        "import sys; sys.modules['mmcv'] = None\n"
        "import polaformer\n"
        "try: import mmcv._ext\n"
        "except ModuleNotFoundError: print('none')"
    )
    assert run_python(code).split() == ["none"]


SENDER = """
import pickle, sys
import polaformer, mmcv.ops
from multiprocessing import get_context
from multiprocessing.process import current_process

if __name__ == "__main__":
    sys.path.insert(0, {folder!r})
    from needs_ops import Dataset, started
    context = get_context({method!r})
    process = context.Process(target=started, args=(Dataset(), {depth}))
    process.start()
    process.join()
    sys.exit(process.exitcode)
"""

RECEIVER = """
import sys
from mmcv.ops import nms
from mmcv.ops.nms import ext_module

class Dataset:
    def __init__(self):
        self.length = 3

def started(dataset, depth):
    print(dataset.length, ext_module.__name__, "polaformer" in sys.modules, flush=True)
    if depth:
        from multiprocessing import get_context
        child = get_context("spawn").Process(target=started, args=(dataset, depth - 1))
        child.start()
        child.join()
        sys.exit(child.exitcode)
"""


@pytest.mark.slow
@pytest.mark.parametrize("method, generations", [("spawn", 2), ("forkserver", 1)])
def test_processes_find_it_before_their_arguments_arrive(tmp_path, method, generations):
    """Neither the target nor its arguments are polaformer's, and there is no main file."""
    if method not in multiprocessing.get_all_start_methods():
        pytest.skip(f"no {method} on this system")
    (tmp_path / "needs_ops.py").write_text(RECEIVER)
    out = run_python(SENDER.format(folder=str(tmp_path), method=method, depth=generations - 1))
    assert [line.split() for line in out.splitlines()] == [["3", NAME, "True"]] * generations


LOADER = """
import polaformer, torch
from torch.utils.data import DataLoader
import sys
sys.path.insert(0, {folder!r})
from plain_dataset import Boxes
loader = DataLoader(Boxes(), batch_size=2, num_workers=1, multiprocessing_context="spawn")
print([batch.tolist() for batch in loader])
"""

DATASET = """
import torch
from mmcv.ops import nms

class Boxes(torch.utils.data.Dataset):
    def __len__(self):
        return 2

    def __getitem__(self, index):
        boxes = torch.tensor([[0.0, 0, 4, 4], [0, 0, 4, 3.9], [8, 8, 9, 9]])
        return nms(boxes, torch.tensor([0.1, 0.9, 0.5]) + index, 0.5)[1]
"""


@pytest.mark.slow
def test_spawned_data_workers_find_it(tmp_path):
    (tmp_path / "plain_dataset.py").write_text(DATASET)
    assert run_python(LOADER.format(folder=str(tmp_path))).strip() == "[[[1, 2], [1, 2]]]"


@pytest.mark.slow
def test_mmdet_needs_polaformer():
    pytest.importorskip("mmdet")
    alone = run_python("import mmdet.models", expect=1)
    assert "No module named 'mmcv._ext'" in alone
    assert run_python("import polaformer, mmdet.models; print('works')").split()[-1] == "works"
