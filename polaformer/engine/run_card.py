"""The run card: one JSON file that says what produced a folder of results."""

from __future__ import annotations

import json
import math
import os
import platform
import shlex
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import polaformer

NAME = "run_card.json"


def strict(value: Any) -> Any:
    """``value`` with None for numbers that are not finite, which JSON does not have."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, dict):
        return {key: strict(entry) for key, entry in value.items()}
    if isinstance(value, (list, tuple)):
        return [strict(entry) for entry in value]
    return value


def write_json(path: str | Path, content: Any) -> None:
    """Write JSON atomically: a reader sees the old file or the new one, never half of it."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    text = json.dumps(strict(content), indent=2, allow_nan=False)
    temporary.write_text(f"{text}\n", encoding="utf-8")
    os.replace(temporary, path)


def git_state() -> dict[str, Any] | None:
    """Commit, branch and whether files differ from it; None where the code is no repository."""
    folder = Path(polaformer.__file__).parent

    def git(*args: str) -> str:
        command = ["git", "-C", str(folder), *args]
        done = subprocess.run(command, capture_output=True, text=True, timeout=10, check=True)
        return done.stdout.strip()

    try:
        return {
            "commit": git("rev-parse", "HEAD"),
            "branch": git("rev-parse", "--abbrev-ref", "HEAD"),
            "changed_files": len(git("status", "--porcelain", "--", str(folder)).splitlines()),
        }
    except (OSError, subprocess.SubprocessError):
        return None


def describe_data(dataset: Any) -> dict[str, Any]:
    """Size, classes and what else the dataset knows: objects, skipped files, fingerprint."""
    metainfo = getattr(dataset, "metainfo", None) or {}
    facts: dict[str, Any] = {"samples": len(dataset)}
    if metainfo.get("classes"):
        facts["classes"] = len(metainfo["classes"])
    counts = getattr(dataset, "class_counts", None)
    if callable(counts) and "category_ids" in metainfo:
        facts["objects"] = sum(counts().values())
    summary = getattr(dataset, "summary", None)
    if callable(summary):
        facts["summary"] = summary()
    fingerprint = getattr(dataset, "fingerprint", None)
    if callable(fingerprint):
        facts["fingerprint"] = fingerprint()
    skipped = getattr(dataset, "skipped", None)
    if skipped:
        facts["skipped"] = len(skipped)
    return facts


class RunCard:
    """The card of one work folder; every start of the run adds an entry to ``starts``."""

    def __init__(self, work_dir: str | Path) -> None:
        self.path = Path(work_dir) / NAME
        self.content: dict[str, Any] = {}

    def start(
        self, facts: dict[str, Any], resumed_from: str | None, epoch: int, iteration: int
    ) -> None:
        """Note a start; a start that resumes keeps what the card already says."""
        earlier = self._read() if resumed_from else {}
        starts = list(earlier.get("starts", []))
        starts.append(
            {
                "time": _now(),
                "command": shlex.join(sys.argv),
                "host": socket.gethostname(),
                "resumed_from": resumed_from,
                "epoch": epoch,
                "iteration": iteration,
            }
        )
        self.content = {
            "name": earlier.get("name", facts["name"]),
            **{key: value for key, value in facts.items() if key != "name"},
            "status": "running",
            "command": shlex.join(sys.argv),
            "started": starts[0]["time"],
            "git": git_state(),
            "host": {
                "name": socket.gethostname(),
                "platform": platform.platform(),
                "python": platform.python_version(),
                "cpus": os.cpu_count(),
            },
            "metrics": earlier.get("metrics"),
            "starts": starts,
        }
        self._write()

    def update(self, **facts: Any) -> None:
        """Set entries of the card."""
        self.content.update(facts)
        self._write()

    def finish(
        self,
        status: str,
        reason: str | None = None,
        epoch: int | None = None,
        iteration: int | None = None,
    ) -> None:
        """Note how this start ended: 'finished', 'interrupted' or 'failed'."""
        self.content = self.content or self._read()
        end = {"ended": _now(), "status": status, "reason": reason}
        reached = {"end_epoch": epoch, "end_iteration": iteration}
        if self.content.get("starts"):
            known = {key: value for key, value in {**end, **reached}.items() if value is not None}
            self.content["starts"][-1].update(known)
        self.content.update(status=status, ended=end["ended"])
        self._write()

    def _read(self) -> dict[str, Any]:
        try:
            content = json.loads(self.path.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return {}
        return content if isinstance(content, dict) else {}

    def _write(self) -> None:
        write_json(self.path, self.content)


def _now() -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S%z")
