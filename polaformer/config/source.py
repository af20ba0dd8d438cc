"""Where a config value was written: the chain of files behind a config, parsed but not executed."""

from __future__ import annotations

import ast
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from polaformer.errors import UserError, nearest

BASE = "_base_"
_ENVIRONMENT = re.compile(r"\{\{['\"]?\s*\$(\w+)\s*:\s*(\S*?)\s*['\"]?\}\}")
_BASE_VARIABLE = re.compile(r"\{\{\s*_base_\.([\w.]+)\s*\}\}")


@dataclass
class ConfigFile:
    """One file of a chain: what it assigns, where, and which names it reads."""

    path: Path
    bases: list[ConfigFile] = field(default_factory=list)
    lines: dict[str, int] = field(default_factory=dict)
    """Dotted key -> line, for every key written in the file: ``model.backbone.attention`` -> 7."""
    texts: dict[str, str] = field(default_factory=dict)
    """Dotted key -> source text of the value."""
    deletes: set[str] = field(default_factory=set)
    """Dotted keys whose dict carries ``_delete_=True``: nothing of the bases reaches below them."""
    names: dict[str, int] = field(default_factory=dict)
    """Top-level name -> line of its first assignment."""
    reads: set[str] = field(default_factory=set)
    """Names of this file that it reads itself."""
    base_reads: set[str] = field(default_factory=set)
    """Names of the bases that it reads as ``_base_.x`` or ``{{_base_.x}}``."""
    readers: dict[str, list[str]] = field(default_factory=dict)
    """Name -> dotted keys of this file whose value reads it."""
    imported: set[str] = field(default_factory=set)

    def chain(self) -> Iterator[ConfigFile]:
        """This file, then its bases, nearest first: the order in which a value is looked for."""
        yield self
        for base in self.bases:
            yield from base.chain()

    def at(self, key: str) -> str:
        """``path:line`` of a key, of its nearest written parent, or the path alone."""
        parts = key.split(".")
        for end in range(len(parts), 0, -1):
            line = self.lines.get(".".join(parts[:end]))
            if line is not None:
                return f"{show(self.path)}:{line}"
        return show(self.path)


@dataclass(frozen=True)
class Origin:
    """One place that sets a key."""

    where: str
    text: str


def show(path: Path | str) -> str:
    """A path as the user would type it: relative to the current folder if it lies below it."""
    relative = os.path.relpath(path)
    return str(path) if relative.startswith("..") else relative


def read_chain(path: str | Path) -> ConfigFile:
    """Parse a config and all its bases.

    Raises UserError in one line for a missing file, a folder, another format, a syntax error, a
    circular base, or the lazy (import-based) config style.
    """
    return _read(Path(path).expanduser(), named_by=None, above=())


def _read(path: Path, named_by: str | None, above: tuple[Path, ...]) -> ConfigFile:
    _check_path(path, named_by)
    path = Path(os.path.abspath(path))
    if path in above:
        loop = " -> ".join(show(p) for p in (*above[above.index(path) :], path))
        raise UserError(f"{named_by}: circular {BASE}: {loop}")
    tree = _parse(path)
    file = ConfigFile(path)
    _collect(tree, file)
    for base, line in _base_paths(tree, path):
        where = f"{show(path)}:{line}"
        if "::" in base:
            raise UserError(
                f"{where}: {BASE} '{base}': configs inside other packages are not supported; "
                "copy the file beside yours and name its path"
            )
        file.bases.append(_read(path.parent / base, where, (*above, path)))
    return file


def _check_path(path: Path, named_by: str | None) -> None:
    prefix = f"{named_by}: {BASE} '{show(path)}'" if named_by else f"config '{path}'"
    if path.is_dir():
        found = sorted(p.name for p in path.glob("*.py"))
        listing = f"; it holds {', '.join(found[:6])}" if found else ""
        raise UserError(f"{prefix} is a folder, not a file{listing}")
    if not path.exists():
        raise UserError(f"{prefix} does not exist{_nearby(path)}")
    if path.suffix != ".py":
        raise UserError(f"{prefix} is not a .py file; configs here are Python text files")


def _nearby(path: Path) -> str:
    folder = path.parent
    while not folder.is_dir() and folder != folder.parent:
        folder = folder.parent
    if folder != path.parent and str(folder) != ".":
        return f"; the last part of it that exists is '{show(folder)}'"
    names = sorted(p.name for p in folder.glob("*.py"))
    match = nearest(path.name, names)
    if match:
        return f"; did you mean '{path.with_name(match)}'?"
    return f"; '{show(folder)}' holds {', '.join(names[:6])}" if names else ""


def _parse(path: Path) -> ast.Module:
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise UserError(f"{show(path)}: not a UTF-8 text file ({error.reason})") from None
    text = _ENVIRONMENT.sub(lambda m: os.environ.get(m[1], m[2]) or "None", text)
    try:
        tree = ast.parse(text, filename=str(path))
    except SyntaxError as error:
        line = (error.text or "").strip()
        quoted = f": {line}" if line else ""
        raise UserError(f"{show(path)}:{error.lineno}: {error.msg}{quoted}") from None
    except ValueError as error:
        raise UserError(f"{show(path)}: not Python text ({error})") from None
    _refuse_lazy(tree, path)
    return tree


def _refuse_lazy(tree: ast.Module, path: Path) -> None:
    for node in _module_level(tree):
        with_base = isinstance(node, ast.With) and any(
            isinstance(item.context_expr, ast.Call)
            and getattr(item.context_expr.func, "id", None) == "read_base"
            for item in node.items
        )
        relative = isinstance(node, ast.ImportFrom) and node.level > 0
        if with_base or relative:
            raise UserError(
                f"{show(path)}:{node.lineno}: this is a lazy config (read_base or relative "
                f"imports); write {BASE} = ['…'] and types as strings instead"
            )


def _base_paths(tree: ast.Module, path: Path) -> list[tuple[str, int]]:
    for node in tree.body:
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", None) == BASE:
            where = f"{show(path)}:{node.lineno}"
            try:
                value = ast.literal_eval(node.value)
            except ValueError:
                value = None
            if isinstance(value, str):
                value = [value]
            if not isinstance(value, list) or not all(isinstance(v, str) for v in value):
                raise UserError(f"{where}: {BASE} must be a literal path or a list of paths")
            lines = [e.lineno for e in node.value.elts] if isinstance(node.value, ast.List) else []
            return list(zip(value, lines or [node.lineno], strict=True))
    return []


def _collect(tree: ast.Module, file: ConfigFile) -> None:
    for statement in _module_level(tree):
        if isinstance(statement, ast.Import | ast.ImportFrom):
            file.imported |= {(a.asname or a.name).split(".")[0] for a in statement.names}
        elif isinstance(statement, ast.FunctionDef | ast.ClassDef):
            file.imported.add(statement.name)
        for target, value in _bindings(statement):
            file.names.setdefault(target, statement.lineno)
            _record(target, statement.lineno, value, file)
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
            file.reads.add(node.id)
        elif isinstance(node, ast.Attribute) and getattr(node.value, "id", None) == BASE:
            file.base_reads.add(node.attr)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            file.base_reads |= {m.split(".")[0] for m in _BASE_VARIABLE.findall(node.value)}


def _module_level(node: ast.AST) -> Iterator[ast.stmt]:
    """Statements that run in the module's own namespace, inside if, for, try and with too."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.stmt):
            yield child
        if not isinstance(child, ast.FunctionDef | ast.ClassDef | ast.Lambda):
            yield from _module_level(child)


def _bindings(node: ast.stmt) -> Iterator[tuple[str, ast.expr | None]]:
    targets: list[ast.expr] = []
    value: ast.expr | None = None
    if isinstance(node, ast.Assign):
        targets, value = node.targets, node.value
    elif isinstance(node, ast.AnnAssign | ast.AugAssign):
        targets, value = [node.target], node.value
    elif isinstance(node, ast.For):
        targets = [node.target]
    elif isinstance(node, ast.With):
        targets = [i.optional_vars for i in node.items if i.optional_vars is not None]
    for target in targets:
        if isinstance(target, ast.Name):
            if target.id != BASE:
                yield target.id, value
        elif isinstance(target, ast.Tuple | ast.List):
            for element in ast.walk(target):
                if isinstance(element, ast.Name):
                    yield element.id, None
        elif isinstance(target, ast.Subscript | ast.Attribute):
            key = _subscript_key(target)
            if key is not None and value is not None:
                yield key, value


def _subscript_key(node: ast.expr) -> str | None:
    """``model['head']`` or ``model.head`` as 'model.head'."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        parent = _subscript_key(node.value)
        return f"{parent}.{node.attr}" if parent else None
    if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant):
        parent = _subscript_key(node.value)
        return f"{parent}.{node.slice.value!s}" if parent else None
    return None


def _record(key: str, line: int, value: ast.expr | None, file: ConfigFile) -> None:
    file.lines[key] = line
    if value is None:
        return
    file.texts[key] = " ".join(ast.unparse(value).split())
    for child_key, child_line, child in _children(key, value):
        if child_key.endswith("._delete_"):
            file.deletes.add(key)
        else:
            _record(child_key, child_line, child, file)
    if isinstance(value, ast.Name):
        file.readers.setdefault(value.id, []).append(key)
    elif not list(_children(key, value)):
        for node in ast.walk(value):
            if isinstance(node, ast.Name):
                file.readers.setdefault(node.id, []).append(key)


def _children(key: str, value: ast.expr) -> Iterator[tuple[str, int, ast.expr]]:
    if isinstance(value, ast.Call) and getattr(value.func, "id", None) == "dict":
        for keyword in value.keywords:
            if keyword.arg is not None:
                yield f"{key}.{keyword.arg}", keyword.lineno, keyword.value
    elif isinstance(value, ast.Dict):
        for name, child in zip(value.keys, value.values, strict=True):
            if isinstance(name, ast.Constant):
                yield f"{key}.{name.value!s}", name.lineno, child
    elif isinstance(value, ast.List | ast.Tuple):
        for index, child in enumerate(value.elts):
            yield f"{key}.{index}", child.lineno, child


def explain(source: ConfigFile, key: str) -> list[Origin]:
    """Every place of the chain that sets ``key`` or one of its parents, the winner first."""
    found: list[Origin] = []
    _explain(source, key, found)
    return found


def _explain(file: ConfigFile, key: str, found: list[Origin]) -> bool:
    """Collect origins; True once nothing further down can reach the key."""
    parts = key.split(".")
    for end in range(len(parts), 0, -1):
        parent = ".".join(parts[:end])
        if parent not in file.lines:
            continue
        merges = file.texts.get(parent, "").startswith(("dict(", "{"))
        exact = end == len(parts)
        if exact or not merges:
            found.append(Origin(f"{show(file.path)}:{file.lines[parent]}", _text(file, parent)))
        alias = file.texts.get(parent, "")
        if not exact and alias in file.lines:
            _explain(file, ".".join([alias, *parts[end:]]), found)
        elif not exact and not merges:
            return True
        break
    stops = any(".".join(parts[:end]) in file.deletes for end in range(1, len(parts) + 1))
    return stops or any(_explain(base, key, found) for base in file.bases)


def _text(file: ConfigFile, key: str) -> str:
    text = f"{key} = {file.texts.get(key, '…')}"
    return text if len(text) <= 90 else text[:87] + "…"
