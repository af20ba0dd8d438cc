"""Values that the command line itself refuses."""

from __future__ import annotations

import argparse
import runpy
from pathlib import Path

import pytest

from polaformer.cli import folder

TOOLS = Path(__file__).resolve().parents[2] / "tools"


@pytest.mark.parametrize("tool, files", [("train.py", ["c.py"]), ("test.py", ["c.py", "w.pth"])])
@pytest.mark.parametrize("value", ["", "  "])
def test_an_empty_work_folder_is_refused(tool, files, value, capsys):
    parse = runpy.run_path(str(TOOLS / tool))["parse_args"]
    with pytest.raises(SystemExit) as stop:
        parse([*files, "--work-dir", value])
    assert stop.value.code == 2
    assert "--work-dir: the path of a folder is empty" in capsys.readouterr().err
    assert parse([*files, "--work-dir", "a b"]).work_dir == "a b"
    assert parse(files).work_dir is None


def test_a_file_is_no_folder(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(argparse.ArgumentTypeError, match="is a file"):
        folder(str(tmp_path / "file"))
