"""What quickstart.sh does with runs that are new, interrupted, finished, changed or too weak."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

# Stands for the environment's interpreter: notes which tool was called and leaves what it would.
FAKE_PYTHON = f"""#!/bin/sh
work=work_dirs/quickstart
case "$1" in
  tools/*) echo "$*" >>calls ;;
esac
case "$1" in
  tools/train.py)
    echo weights >"$work/epoch_1.pth"
    [ ! -e killed ] || exit 137
    echo weights >"$work/epoch_2.pth"
    echo "/elsewhere/epoch_2.pth" >"$work/last_checkpoint" ;;
  tools/test.py) cat top1 >"$work/metrics.json" ;;
  tools/*) ;;
  *) exec "{sys.executable}" "$@" ;;
esac
"""


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A checkout whose environment is complete and whose tools are stand-ins."""
    root = tmp_path / "my checkout"
    (root / "tools").mkdir(parents=True)
    for name in ("_env.sh", "quickstart.sh"):
        shutil.copy(ROOT / "tools" / name, root / "tools" / name)
    shutil.copy(ROOT / "requirements.txt", root / "requirements.txt")
    shutil.copytree(ROOT / "configs", root / "configs")
    python = root / ".venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text(FAKE_PYTHON)
    python.chmod(0o755)
    mark = '. "$1/tools/_env.sh"; set_marker run requirements.txt'
    subprocess.run(["bash", "-euc", mark, "-", str(root)], check=True, env=environment())
    (root / "top1").write_text('{"metrics": {"top1": 98.5}}')
    return root


def environment() -> dict[str, str]:
    return {key: value for key, value in os.environ.items() if key not in ("VENV", "PYTHON")}


def quickstart(checkout: Path) -> tuple[subprocess.CompletedProcess, list[str]]:
    """The finished process, and the tools it called."""
    calls = checkout / "calls"
    calls.unlink(missing_ok=True)
    done = subprocess.run(
        ["bash", str(checkout / "tools" / "quickstart.sh")],
        capture_output=True,
        text=True,
        check=False,
        cwd="/",
        env={**environment(), "CI": "true"},
        timeout=60,
    )
    return done, calls.read_text().splitlines() if calls.exists() else []


def test_a_new_run_goes_through_all_steps(checkout: Path) -> None:
    done, calls = quickstart(checkout)
    assert done.returncode == 0, done.stderr
    config = "configs/classification/pola-pvt-nano_digits.py"
    assert calls == [
        "tools/prepare_data.py digits",
        f"tools/train.py {config} --work-dir work_dirs/quickstart",
        f"tools/test.py {config} work_dirs/quickstart/epoch_2.pth --work-dir work_dirs/quickstart",
        "tools/report.py work_dirs/quickstart",
    ]
    assert "top-1 on the held-out digits: 98.50 %" in done.stdout
    assert f"{checkout}/work_dirs/quickstart/report.html" in done.stdout


def test_a_finished_run_is_reused(checkout: Path) -> None:
    quickstart(checkout)
    done, calls = quickstart(checkout)
    assert done.returncode == 0, done.stderr
    assert "reusing the finished run" in done.stdout
    assert [call.split()[0] for call in calls] == ["tools/prepare_data.py", "tools/report.py"]


def test_an_interrupted_run_goes_on(checkout: Path) -> None:
    (checkout / "killed").touch()
    done, calls = quickstart(checkout)
    assert done.returncode == 137
    assert 'stopped with exit code 137 in step "training"' in done.stderr
    assert len(calls) == 2
    (checkout / "killed").unlink()
    done, calls = quickstart(checkout)
    assert done.returncode == 0, done.stderr
    assert "going on with the interrupted run" in done.stdout
    assert calls[1].endswith("--work-dir work_dirs/quickstart --resume")


def test_a_changed_recipe_is_trained_anew_and_the_old_run_kept(checkout: Path) -> None:
    quickstart(checkout)
    with (checkout / "configs" / "_base_" / "schedules" / "digits.py").open("a") as file:
        file.write("# changed\n")
    done, calls = quickstart(checkout)
    assert done.returncode == 0, done.stderr
    assert calls[1].endswith("--work-dir work_dirs/quickstart")
    kept = [path for path in (checkout / "work_dirs").iterdir() if path.name != "quickstart"]
    assert len(kept) == 1
    assert (kept[0] / "metrics.json").is_file()


def test_too_low_an_accuracy_is_an_error_after_everything_is_written(checkout: Path) -> None:
    (checkout / "top1").write_text('{"metrics": {"top1": 96.9}}')
    done, calls = quickstart(checkout)
    assert done.returncode == 1
    assert "warning: 96.90 % is below the 97 %" in done.stderr
    assert "stopped with" not in done.stderr
    assert len(calls) == 4
