"""``tools/report.py``: what it writes, says and refuses."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def tool() -> ModuleType:
    spec = importlib.util.spec_from_file_location("report_tool", ROOT / "tools" / "report.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_tool_prints_where_it_wrote(
    tool: ModuleType, finished_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    assert tool.main([str(finished_run)]) == 0
    assert capsys.readouterr().out.strip() == str(finished_run / "report.html")
    assert tool.main([str(tmp_path / "nowhere"), str(finished_run)]) == 2
    captured = capsys.readouterr()
    assert captured.err.startswith("error: ")
    assert "nowhere' is not a folder" in captured.err
    assert "report.html" in captured.out
