"""Which recipes are shipped, what their bases set, and the optimiser that a recipe asks for."""

from __future__ import annotations

import ast
import subprocess
from pathlib import Path
from typing import Any

import torch

import polaformer.registry as registry

ROOT = Path(__file__).resolve().parents[2]
SIZES = {"t": "tiny", "s": "small", "m": "medium", "l": "large", "b": "base", "nano": "nano"}
BACKBONES = {"swin": "polaformer.PolaSwin", "pvt": "polaformer.PolaPVT"}


def shipped(folder: Path) -> list[Path]:
    """The recipes under version control; a user's own beside them need not keep our rules."""
    command = ["git", "-C", str(folder), "ls-files", "*.py"]
    try:
        names = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    except (OSError, subprocess.CalledProcessError):  # no git, or an unpacked archive
        names = [path.name for path in folder.glob("*.py")]
    return sorted(folder / name for name in names)


def docstring_of(path: Path) -> str:
    return ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""


def lines_of_code(path: Path) -> int:
    """Lines after the docstring that are not empty."""
    code = path.read_text(encoding="utf-8").split('"""')[2]
    return len([line for line in code.splitlines() if line.strip()])


def top_level_names(path: Path) -> set[str]:
    return {
        target.id
        for node in ast.parse(path.read_text(encoding="utf-8")).body
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name) and target.id != "_base_"
    }


def parameters(model: torch.nn.Module) -> int:
    return sum(p.numel() for p in model.parameters())


def build_optim_wrapper(model: torch.nn.Module, cfg: Any) -> Any:
    settings = cfg.to_dict() if hasattr(cfg, "to_dict") else dict(cfg)
    constructor = settings.pop("constructor")
    paramwise = settings.pop("paramwise_cfg")
    return registry.OPTIM_WRAPPER_CONSTRUCTORS.build(
        {"type": constructor, "optim_wrapper_cfg": settings, "paramwise_cfg": paramwise}
    )(model)
