"""The environment that both scripts share, with a stand-in for the package installer."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

# Stands for `venv/bin/python`: answers like an interpreter with pip, and notes what was installed.
FAKE_PYTHON = """#!/bin/sh
case "$*" in
  *"import torch"*) [ ! -e "$(dirname "$0")/torn" ] ;;
  *"-m pip install"*) echo "$*" >>"$(dirname "$0")/../installed" ;;
esac
"""
# Stands for the interpreter that makes environments.
FAKE_MAKER = f"""#!/bin/sh
case "$*" in
  *"-m venv"*)
    for last; do :; done
    rm -rf "$last"; mkdir -p "$last/bin"; echo home >"$last/pyvenv.cfg"
    cp "$(dirname "$0")/fake_python" "$last/bin/python" ;;
  *) exec "{sys.executable}" "$@" ;;
esac
"""


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A copy of the scripts and requirements, in a folder with a space in its name."""
    root = tmp_path / "my checkout"
    (root / "tools").mkdir(parents=True)
    for name in (
        "tools/_env.sh",
        "tools/quickstart.sh",
        "requirements.txt",
        "requirements-dev.txt",
    ):
        shutil.copy(ROOT / name, root / name)
    for name, text in (("fake_python", FAKE_PYTHON), ("maker", FAKE_MAKER)):
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    return root


def ensure(checkout: Path, kind: str = "run", **env: str) -> subprocess.CompletedProcess:
    files = "requirements-dev.txt requirements.txt" if kind == "dev" else "requirements.txt"
    clean = {k: v for k, v in os.environ.items() if k not in ("VENV", "PYTHON")}
    return subprocess.run(
        ["bash", "-euc", f'. "$1/tools/_env.sh"; ensure_venv {kind} {files}', "-", str(checkout)],
        capture_output=True,
        text=True,
        check=False,
        cwd="/",
        env={**clean, "PYTHON": str(checkout.parent / "maker"), **env},
        timeout=60,
    )


def installed(checkout: Path, venv: str = ".venv") -> list[str]:
    path = checkout / venv / "installed"
    return path.read_text().splitlines() if path.exists() else []


def test_made_once_and_then_reused_without_installing(checkout: Path) -> None:
    first = ensure(checkout)
    assert first.returncode == 0, first.stderr
    assert "making" in first.stdout
    lines = installed(checkout)
    assert len(lines) == 2
    assert lines[0].endswith(f"-r {checkout}/requirements.txt")
    assert lines[1].endswith(f"--no-deps -e {checkout}")
    second = ensure(checkout)
    assert "nothing to install" in second.stdout
    assert installed(checkout) == lines


def test_changed_requirements_are_installed(checkout: Path) -> None:
    ensure(checkout)
    with (checkout / "requirements.txt").open("a") as file:
        file.write("# changed\n")
    assert "nothing to install" not in ensure(checkout).stdout
    assert len(installed(checkout)) == 4


def test_the_development_environment_serves_a_run_too(checkout: Path) -> None:
    ensure(checkout, "dev")
    assert "nothing to install" in ensure(checkout, "run").stdout
    assert "nothing to install" in ensure(checkout, "dev").stdout


def test_a_run_environment_is_completed_for_development(checkout: Path) -> None:
    ensure(checkout, "run")
    assert "requirements-dev.txt" in ensure(checkout, "dev").stdout


@pytest.mark.parametrize("damage", ["no python", "no pip", "no marker"])
def test_a_broken_or_half_made_environment_is_repaired(checkout: Path, damage: str) -> None:
    ensure(checkout)
    python = checkout / ".venv" / "bin" / "python"
    if damage == "no python":
        python.unlink()
    elif damage == "no pip":
        python.write_text("#!/bin/sh\nexit 1\n")
    else:
        (checkout / ".venv" / ".polaformer-run").unlink()
    result = ensure(checkout)
    assert result.returncode == 0, result.stderr
    assert ("broken or half made" in result.stdout) == (damage != "no marker")
    assert "nothing to install" in ensure(checkout).stdout


def test_an_environment_that_cannot_import_is_made_anew(checkout: Path) -> None:
    ensure(checkout)
    (checkout / ".venv" / ".polaformer-run").unlink()
    (checkout / ".venv" / "bin" / "torn").touch()
    result = ensure(checkout)
    assert result.returncode == 0, result.stderr
    assert "cannot be completed, making it anew" in result.stdout
    assert not (checkout / ".venv" / "bin" / "torn").exists()


def test_another_checkout_is_installed_into_a_shared_environment(checkout: Path) -> None:
    venv = str(checkout.parent / "shared env")
    ensure(checkout, VENV=venv)
    copy = checkout.parent / "copy"
    shutil.copytree(checkout, copy)
    assert "nothing to install" not in ensure(copy, VENV=venv).stdout


def test_a_folder_with_other_things_is_never_cleared(checkout: Path) -> None:
    precious = checkout.parent / "home"
    precious.mkdir()
    (precious / "thesis.txt").write_text("x")
    result = ensure(checkout, VENV=str(precious))
    assert result.returncode == 2
    assert "other things in it" in result.stderr
    assert (precious / "thesis.txt").exists()


def test_an_old_or_missing_python_is_explained(checkout: Path) -> None:
    old = checkout.parent / "old"
    old.write_text("#!/bin/sh\nexit 1\n")
    old.chmod(0o755)
    for python in (str(old), "no-such-python"):
        result = ensure(checkout, PYTHON=python)
        assert result.returncode == 2
        assert "no Python 3.11 or newer" in result.stderr
        assert python in result.stderr


def test_quickstart_explains_itself_and_refuses_arguments(checkout: Path) -> None:
    script = str(checkout / "tools" / "quickstart.sh")
    shown = subprocess.run(["bash", script, "--help"], capture_output=True, text=True, check=False)
    assert shown.returncode == 0
    assert "bash tools/quickstart.sh" in shown.stdout
    wrong = subprocess.run(["bash", script, "--fast"], capture_output=True, text=True, check=False)
    assert wrong.returncode == 2
    assert "unknown argument '--fast'" in wrong.stderr
