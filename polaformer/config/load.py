"""Load a config: text files with ``_base_``, strict about every key, overrides, and presets."""

from __future__ import annotations

import re
import traceback
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mmengine.config import Config

from polaformer.config import schema
from polaformer.config.classes import KEY as CLASSES
from polaformer.config.classes import expand_classes
from polaformer.config.keys import Finding, find_mistakes
from polaformer.config.overrides import CLI, apply_overrides, parse_overrides
from polaformer.config.presets import apply_presets, switched
from polaformer.config.source import ConfigFile, explain, read_chain, show
from polaformer.errors import UserError

IMPORTS = "custom_imports"
_MERGED = re.compile(
    r"(?P<key>\w+)=.* in child config cannot inherit .* of type <class '(?P<kind>\w+)'>", re.DOTALL
)
"""mmengine's words for a dict that meets something else in a base."""

Overrides = Mapping[str, Any] | Sequence[str] | None


@dataclass
class Origins:
    """Where the values of a loaded config come from."""

    source: ConfigFile | None = None
    overrides: dict[str, Any] = field(default_factory=dict)
    switches: dict[str, str] = field(default_factory=dict)
    """Key -> the switch of the command line that sets it, such as ``--resume``."""
    expanded: set[str] = field(default_factory=set)
    """Keys whose value comes from the top-level key ``classes``."""
    conflicting: set[str] = field(default_factory=set)
    """Keys whose value conflicts with ``classes``."""


def load_config(
    path: str | Path,
    overrides: Overrides = (),
    *,
    work_dir: str | Path | None = None,
    amp: str | None = None,
    seed: int | None = None,
    deterministic: bool = False,
    resume: bool | str | Path | None = None,
) -> Config:
    """The config at ``path`` with overrides and presets applied, every key of it known.

    Args:
        path: A ``.py`` text config; its Python code is run. Relative to the current folder.
        overrides: ``{'a.b.0.c': value}`` or ``['a.b.0.c=value', …]`` (values as Python literals).
        work_dir: Where the run writes; without it ``work_dirs/<config name>``.
        amp: 'bf16' or 'fp16'. resume: True for the newest checkpoint in work_dir, or a file.

    Raises UserError naming every unknown key, keyword and type with its file and line.
    """
    cfg, problems = read_config(
        path,
        overrides,
        work_dir=work_dir,
        amp=amp,
        seed=seed,
        deterministic=deterministic,
        resume=resume,
    )
    problems += located_once(cfg, find_mistakes(cfg))
    if problems:
        raise UserError("\n".join(dict.fromkeys(problems)))
    return cfg


def read_config(
    path: str | Path, overrides: Overrides = (), **presets: Any
) -> tuple[Config, list[str]]:
    """As ``load_config``, but gives back unknown top-level keys and refused overrides as sentences.

    Keywords inside are left for ``find_mistakes``. A file that cannot be read still raises
    UserError. ``presets`` are the keyword arguments of ``load_config``.
    """
    import polaformer.registry  # noqa: F401  (applies the repairs of mmengine's config merging)

    source = read_chain(path)
    cfg = _from_file(source)
    problems = _settle_names(cfg, source)
    wanted = parse_overrides(overrides)
    wanted, refused = _refuse_helpers(wanted, source)
    findings = apply_overrides(cfg, wanted)
    problems += refused + [f"{CLI} {f.key}: {f.text}" for f in findings]
    expanded, conflicts = expand_classes(cfg, source, wanted)
    conflicting = {finding.key for finding in conflicts}
    _remember(cfg, Origins(source, wanted, switched(presets), expanded, conflicting))
    problems += located_once(cfg, conflicts)
    apply_presets(cfg, name=source.path.stem, **presets)
    return cfg, problems


def _remember(cfg: Config, origins: Origins) -> None:
    object.__setattr__(cfg, "_origins", origins)


def origins_of(cfg: Any) -> Origins:
    """Where the values of ``cfg`` come from; empty for a config that was not loaded here."""
    found = getattr(cfg, "_origins", None) if isinstance(cfg, Config) else None
    return found if isinstance(found, Origins) else Origins()


def where(cfg: Any, key: str) -> str:
    """``file:line`` that sets ``key``, ``--cfg-options`` or another switch, or an empty string."""
    origins = origins_of(cfg)
    if key in origins.expanded:
        return where(cfg, CLASSES)
    places = {**dict.fromkeys(origins.overrides, CLI), **origins.switches}
    for name in reversed(places):
        if key == name or key.startswith(f"{name}."):
            return places[name]
    if origins.source is None:
        return ""
    parts = key.split(".")
    for end in range(len(parts), 0, -1):
        found = explain(origins.source, ".".join(parts[:end]))
        if found:
            return found[0].where
    return ""


def located(cfg: Any, finding: Finding) -> str:
    """A finding as one line: key, file and line, and the sentence."""
    place = _place(cfg, finding)
    line = f"{finding.key} ({place}): {finding.text}" if place else f"{finding.key}: {finding.text}"
    return line + _left_over(cfg, finding) + _cause(cfg, finding, place)


def located_once(cfg: Any, findings: Iterable[Finding], told: set[Any] | None = None) -> list[str]:
    """Findings as lines; one written line that makes several entries has its mistake told once.

    ``told`` is what was told before, and is added to.
    """
    told = set() if told is None else told
    lines = []
    for finding in findings:
        place = _place(cfg, finding)
        key = finding.key
        if re.search(r":\d+$", place):  # entries of a comprehension, and val = test = dict(…)
            key = re.sub(r"\.\d+(?=\.|$)", ".*", re.sub(r"^(val|test)_", "*_", key))
        if (key, place, finding.text) not in told:
            told.add((key, place, finding.text))
            lines.append(located(cfg, finding))
    return lines


def _cause(cfg: Any, finding: Finding, place: str) -> str:
    """The other key of a finding, where that was written in another file."""
    there = where(cfg, finding.because) if finding.because else ""
    if not there or there.rpartition(":")[0] == place.rpartition(":")[0]:
        return ""
    return f" (or change {finding.because} at {there})"


def _place(cfg: Any, finding: Finding) -> str:
    """Where a finding is from; a value of the command line below its key may be meant as well."""
    place = where(cfg, finding.key)
    below = [key for key in origins_of(cfg).overrides if key.startswith(f"{finding.key}.")]
    words = set(re.findall(r"\w+", finding.text))
    named = [key for key in below if key.rpartition(".")[2] in words]
    if named:
        return f"{CLI} {' '.join(named)}"
    return f"{place}; {CLI} {' '.join(below)}" if below else place


def _left_over(cfg: Any, finding: Finding) -> str:
    """Advice for a keyword that a base wrote for another ``type``."""
    source = origins_of(cfg).source
    parent, _, name = finding.key.rpartition(".")
    if source is None or "has no keyword" not in finding.text or name == "type":
        return ""
    kinds = explain(source, f"{parent}.type")
    written = explain(source, finding.key)
    if len(kinds) < 2 or not written:
        return ""
    files = [show(file.path) for file in source.chain()]
    at, type_at = (files.index(one[0].where.rpartition(":")[0]) for one in (written, kinds))
    if at <= type_at:  # written beside the type, or nearer than it
        return ""
    return f" (it comes from a base; add _delete_=True beside type at {kinds[0].where} to drop it)"


def _from_file(source: ConfigFile) -> Config:
    try:
        cfg = Config.fromfile(str(source.path), lazy_import=False)
    except UserError:
        raise
    except Exception as error:
        raise UserError(_explain_failure(error, source)) from error
    for key in list(cfg):
        if callable(cfg[key]) and not isinstance(cfg[key], dict):
            cfg.pop(key)
    _strip(cfg)
    return cfg


def _strip(node: Any) -> None:
    """Remove merge instructions that found nothing to merge with."""
    if isinstance(node, dict | Config):
        for key in [k for k in node if k == "_delete_" or (k == "_scope_" and node[k] is None)]:
            node.pop(key)
        for key in node:
            _strip(node[key])
    elif isinstance(node, list | tuple):
        for item in node:
            _strip(item)


def _explain_failure(error: Exception, source: ConfigFile) -> str:
    text = str(error.args[0]) if isinstance(error, KeyError) and error.args else str(error)
    if "Duplicate key is not allowed among bases" in text:
        return _duplicates(source)
    if "Failed to import custom modules" in text:
        return f"{source.at('custom_imports')}: custom_imports: {error.__cause__}"
    merged = _MERGED.match(text)
    if merged:
        return _other_kind(merged["key"], merged["kind"], source)
    paths = {str(file.path): file for file in source.chain()}
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        if "custom_imports" in (frame.line or ""):
            where = next((f.at(IMPORTS) for f in source.chain() if IMPORTS in f.lines), "")
            return f"{where}: {IMPORTS} expects dict(imports=['my_module', …])"
        if frame.filename in paths:
            return f"{show(frame.filename)}:{frame.lineno}: {type(error).__name__}: {text}"
    return f"{show(source.path)}: {text.splitlines()[0] if text else type(error).__name__}"


def _other_kind(name: str, kind: str, source: ConfigFile) -> str:
    """A dict over something else of a base, which cannot be merged."""
    keys = [k for f in source.chain() for k in f.lines if k.rpartition(".")[2] == name]
    key = next((k for k in keys if source.texts.get(k, "").startswith(("dict(", "{"))), name)
    wanted = schema.expected_container(key)
    if wanted is not None and Mapping not in wanted:
        return f"{source.at(key)}: {key} is a dict here; a list is expected, as in [dict(type=…)]"
    return (
        f"{source.at(key)}: {key} is a dict here, but a base has a {kind} there; write a {kind}, "
        "or add _delete_=True to the dict to put it in its place"
    )


def _duplicates(source: ConfigFile) -> str:
    for file in source.chain():
        owners: dict[str, str] = {}
        for base in file.bases:
            for name, place in {n: f.at(n) for f in base.chain() for n in f.names}.items():
                if name in owners:
                    return (
                        f"{show(file.path)}: two of its bases set '{name}': {owners[name]} and "
                        f"{place}; a top-level key may have one owner among bases"
                    )
                owners[name] = place
    return f"{show(source.path)}: two of its bases set the same top-level key"


def _settle_names(cfg: Config, source: ConfigFile) -> list[str]:
    """Drop helper variables from ``cfg``; returns a sentence for each name that is neither."""
    files = list(source.chain())
    base_reads = set().union(*(file.base_reads for file in files))
    problems = []
    for name in [n for n in cfg if n not in schema.top_level_keys()]:
        cfg.pop(name)
        for file in files:
            if name in file.names and name not in file.reads and name not in base_reads:
                problems.append(_unknown_name(name, file, files))
        if not any(name in file.names or name in file.imported for file in files):
            problems.append(f"{show(source.path)}: unknown key '{name}'{_hint(name)}")
    return list(dict.fromkeys(problems))


def _hint(name: str) -> str:
    hint = schema.meant_at_the_top(name)
    return f"; {hint}" if hint else f"; known keys: {', '.join(sorted(schema.top_level_keys()))}"


def _unknown_name(name: str, file: ConfigFile, files: list[ConfigFile]) -> str:
    head = f"{file.at(name)}: "
    users = [other for other in files if name in other.names and name in other.reads]
    if users:
        return head + _no_effect(name, users[0])
    return f"{head}unknown key '{name}'{_hint(name)}"


def _no_effect(name: str, user: ConfigFile) -> str:
    keys = user.readers.get(name, [])
    instead = f"; set {' and '.join(keys)} instead" if keys else ""
    return (
        f"'{name}' has no effect here: it is a helper variable of {user.at(name)}, "
        f"already used there{instead}"
    )


def _refuse_helpers(
    overrides: dict[str, Any], source: ConfigFile
) -> tuple[dict[str, Any], list[str]]:
    known = schema.top_level_keys()
    kept, refused = {}, []
    for key, value in overrides.items():
        name = key.split(".")[0]
        users = [f for f in source.chain() if name in f.names and name in f.reads]
        if name in known or not users:
            kept[key] = value
        else:
            refused.append(f"{CLI} {key}: {_no_effect(name, users[0])}")
    return kept, refused
