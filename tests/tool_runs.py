"""The tools as a user runs them: in this process, in several, and killed; what they leave."""

from __future__ import annotations

import json
import multiprocessing
import os
import runpy
import signal
import socket
import sys
import time
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import torch

ROOT = Path(__file__).resolve().parents[1]
TRAIN, TEST = ROOT / "tools" / "train.py", ROOT / "tools" / "test.py"


@dataclass
class Ended:
    """How a command of a user ended."""

    code: int
    out: str
    err: str


def tool(capfd: Any, script: Path, *words: object) -> Ended:
    """Run a tool in this process as its command would: same arguments, same exit code."""
    capfd.readouterr()
    code = call(script, words)
    return Ended(code, *capfd.readouterr())


def call(script: Path, words: Sequence[object]) -> int:
    """The exit code of a tool that runs in this process."""
    with mock.patch.object(sys, "argv", [str(script), *map(str, words)]):
        try:
            runpy.run_path(str(script), run_name="__main__")
        except SystemExit as end:
            return int(end.code or 0)
    raise AssertionError(f"{script} returned without an exit code")


def tool_in_processes(count: int, logs: Path, script: Path, *words: object) -> list[str]:
    """Run a tool in ``count`` processes as torchrun would, forked to save the imports.

    Each writes to a file in ``logs``. Returns what they have written; all must end with exit
    code 0 within five minutes.
    """
    logs.mkdir()
    files = [logs / f"{rank}.txt" for rank in range(count)]
    port = free_port()
    context = multiprocessing.get_context("fork")
    children = [
        context.Process(target=_rank, args=(rank, count, port, files[rank], script, words))
        for rank in range(count)
    ]
    for child in children:
        child.start()
    end = time.monotonic() + 300
    for child in children:
        child.join(max(end - time.monotonic(), 0))
    for child in children:
        child.kill()
        child.join()
    texts = [file.read_text() for file in files]
    codes = [child.exitcode for child in children]
    assert codes == [0] * count, f"exit codes {codes}:\n" + "\n".join(texts)
    return texts


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def killed(output: Path, script: Path, *words: object) -> None:
    """Run a tool in a process of its own that must be killed by SIGKILL before it ends."""
    child = multiprocessing.get_context("fork").Process(
        target=_forked, args=(output, script, words)
    )
    child.start()
    child.join(300)
    assert child.exitcode == -signal.SIGKILL, output.read_text()


def _rank(
    rank: int, count: int, port: int, output: Path, script: Path, words: Sequence[object]
) -> None:
    place = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "LOCAL_WORLD_SIZE": str(count)}
    os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(count), **place}
    _forked(output, script, words)


def _forked(output: Path, script: Path, words: Sequence[object]) -> None:
    """Run a tool in a forked process, which writes to the file ``output`` and ends here."""
    descriptor = os.open(output, os.O_WRONLY | os.O_CREAT)
    os.dup2(descriptor, 1)
    os.dup2(descriptor, 2)
    sys.stdout, sys.stderr = os.fdopen(1, "w", closefd=False), os.fdopen(2, "w", closefd=False)
    code = 1
    try:
        code = call(script, words)
    except BaseException:
        traceback.print_exc()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def scalars(work_dir: Path) -> list[dict[str, Any]]:
    """The lines of ``scalars.json``."""
    return [json.loads(line) for line in (work_dir / "scalars.json").read_text().splitlines()]


def losses(work_dir: Path) -> list[float]:
    return [line["loss"] for line in scalars(work_dir) if "loss" in line]


def weights(path: Path) -> dict[str, torch.Tensor]:
    return torch.load(path, weights_only=True)["state_dict"]


def log_of(work_dir: Path) -> str:
    """The log files of a work folder."""
    return "".join(path.read_text() for path in sorted(work_dir.glob("*.log")))
