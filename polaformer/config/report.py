"""What ``tools/check.py`` prints."""

from __future__ import annotations

import json
import logging
import sys
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from polaformer.config.check import check_file
from polaformer.config.load import CLI, Overrides, origins_of, read_config, where
from polaformer.config.plan import Plan, summary_table
from polaformer.config.source import explain
from polaformer.errors import UserError, did_you_mean

NARROWEST = 125
"""Columns of the table of several configs where no terminal gives a width."""


def show_plans(
    paths: Sequence[str | Path],
    overrides: Overrides = (),
    *,
    as_json: bool = False,
    presets: Mapping[str, Any] | None = None,
    require_data: bool = False,
    processes: int | None = None,
) -> int:
    """Check every config and print the plans; returns the exit code: 1 if any has a problem."""
    warnings.simplefilter("ignore")
    logging.disable(logging.INFO)
    plans = [
        check_file(
            path,
            overrides,
            presets=presets,
            require_data=require_data,
            processes=processes,
            keep_listings=True,
        )
        for path in paths
    ]
    if as_json:
        sys.stdout.write(json.dumps([plan.to_dict() for plan in plans], indent=1) + "\n")
    else:
        _print(plans)
    return 0 if all(plan.sound for plan in plans) else 1


def _print(plans: Sequence[Plan]) -> None:
    from rich.console import Console
    from rich.text import Text

    console = Console(soft_wrap=False)
    if not console.is_terminal:
        console.width = max(console.width, NARROWEST)
    one = len(plans) == 1
    console.print(plans[0].table() if one else summary_table(plans, console.width))
    for plan in plans:
        for kind, lines in (("note", plan.notes), ("problem", plan.problems)):
            if kind == "note" and len(plans) > 1:
                continue
            for line in lines:
                head = f"{kind}: " if len(plans) == 1 else f"{plan.config}: "
                console.print(Text(head + line), soft_wrap=True)
    if len(plans) > 1:
        _print_common_notes(plans, console)
    unsound = sum(not plan.sound for plan in plans)
    verdict = "sound" if not unsound else f"{unsound} of {len(plans)} with problems"
    console.print(Text(f"{len(plans)} config{'s' * (len(plans) > 1)}: {verdict}"), soft_wrap=True)


def _print_common_notes(plans: Sequence[Plan], console: Any) -> None:
    """Each note once, with the number of configs that it concerns."""
    from rich.text import Text

    counts: dict[str, int] = {}
    for plan in plans:
        for note in plan.notes:
            counts[note] = counts.get(note, 0) + 1
    for note, count in counts.items():
        configs = f"{count} configs" if count > 1 else "1 config"
        console.print(Text(f"note ({configs}): {note}"), soft_wrap=True)


def explain_key(path: str | Path, key: str, overrides: Overrides = ()) -> int:
    """Print the value of ``key`` and every place that sets it, the winner first.

    Raises UserError for a key that the config does not have.
    """
    cfg, problems = read_config(path, overrides)
    value = _dig(cfg, key)
    origins = origins_of(cfg)
    lines = [f"{key} = {value!r}"]
    found = [f"  {CLI}" for name in origins.overrides if key == name or key.startswith(f"{name}.")]
    if key in origins.expanded:
        found.append(f"  {where(cfg, 'classes')}: classes = {cfg['classes']!r}")
    if origins.source is not None:
        found += [f"  {origin.where}: {origin.text}" for origin in explain(origins.source, key)]
    lines += found or ["  set by a default, not by a file"]
    sys.stdout.write("\n".join([*lines, *problems]) + "\n")
    return 1 if problems else 0


def _dig(cfg: Any, key: str) -> Any:
    node = cfg
    parts = key.split(".")
    for depth, part in enumerate(parts):
        here = ".".join(parts[:depth]) or "the config"
        if isinstance(node, list | tuple):
            if not part.isdigit() or int(part) >= len(node):
                raise UserError(f"--explain {key}: {here} has {len(node)} entries, no '{part}'")
            node = node[int(part)]
        elif hasattr(node, "keys") and part in node:
            node = node[part]
        else:
            names = list(node) if hasattr(node, "keys") else []
            hint = did_you_mean(part, names)
            raise UserError(f"--explain {key}: {here} has no '{part}'. {hint}".rstrip())
    return node
