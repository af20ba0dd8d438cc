"""Command-line switches that stand for several config keys."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from polaformer.config.values import MAX_SEED
from polaformer.errors import UserError, did_you_mean

AMP_DTYPES = {"bf16": "bfloat16", "fp16": "float16"}
_PLAIN = {None, "OptimWrapper", "AmpOptimWrapper"}

_SWITCHES = {
    "work_dir": ("--work-dir", "work_dir"),
    "amp": ("--amp", "optim_wrapper.dtype"),
    "seed": ("--seed", "randomness.seed"),
    "deterministic": ("--deterministic", "randomness.deterministic"),
    "resume": ("--resume", "load_from"),
}
"""Argument of ``apply_presets`` -> the switch on the command line and the key that it sets."""


def switched(presets: Mapping[str, Any]) -> dict[str, str]:
    """Config key -> the switch that sets it, of the presets that are given."""
    given = {name for name, value in presets.items() if value is not None and value is not False}
    return {key: switch for name, (switch, key) in _SWITCHES.items() if name in given}


def apply_presets(
    cfg: Any,
    *,
    name: str,
    work_dir: str | Path | None = None,
    amp: str | None = None,
    seed: int | None = None,
    deterministic: bool = False,
    resume: bool | str | Path | None = None,
) -> None:
    """Write the switches into ``cfg``; ``name`` names the default work folder.

    Raises UserError for an unknown ``amp``, a seed out of range or no file to resume.
    """
    if work_dir is not None:
        cfg["work_dir"] = str(work_dir)
    elif cfg.get("work_dir") is None:
        cfg["work_dir"] = str(Path("work_dirs") / name)
    if amp is not None:
        _apply_amp(cfg, amp)
    if seed is not None or deterministic:
        _apply_randomness(cfg, seed, deterministic)
    if resume is True or isinstance(resume, str | Path):
        _apply_resume(cfg, resume)


def _apply_amp(cfg: Any, amp: str) -> None:
    if amp not in AMP_DTYPES:
        hint = did_you_mean(str(amp), AMP_DTYPES)
        raise UserError(f"--amp {amp}: expected bf16 or fp16. {hint}".rstrip())
    wrapper = cfg.get("optim_wrapper")
    if wrapper is None:
        return
    kind = wrapper.get("type")
    if kind not in _PLAIN and not str(kind).endswith("AmpOptimWrapper"):
        raise UserError(
            f"--amp {amp}: optim_wrapper.type is '{kind}', which has no mixed precision"
        )
    if kind in (None, "OptimWrapper"):
        wrapper["type"] = "AmpOptimWrapper"
    wrapper["dtype"] = AMP_DTYPES[amp]


def _apply_randomness(cfg: Any, seed: int | None, deterministic: bool) -> None:
    randomness = dict(cfg.get("randomness") or {})
    if seed is not None:
        if not 0 <= seed <= MAX_SEED:
            raise UserError(f"--seed {seed}: expected a number from 0 to {MAX_SEED}")
        randomness["seed"] = int(seed)
    if deterministic:
        randomness["deterministic"] = True
    cfg["randomness"] = randomness


def _apply_resume(cfg: Any, resume: Literal[True] | str | Path) -> None:
    cfg["resume"] = True
    if resume is True:
        cfg["load_from"] = None
        return
    path = Path(resume)
    if not path.is_file():
        what = "is a folder" if path.is_dir() else "does not exist"
        names = [p.name for p in path.parent.glob("*.pth")] if path.parent.is_dir() else []
        hint = did_you_mean(path.name, names)
        raise UserError(f"--resume {path}: {what}. {hint}".rstrip())
    cfg["load_from"] = str(path)
