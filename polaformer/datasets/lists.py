"""Images and their classes from a text file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from polaformer.datasets.layout import Layout, check_class_names, locate_split, name_some
from polaformer.errors import UserError, did_you_mean


def listed_files(
    root: str | Path,
    split: str | None,
    ann_file: str | Path,
    classes: Sequence[str] | None = None,
    vocabulary: Sequence[str] | None = None,
) -> Layout:
    """The images that ``ann_file`` lists, one per line: path below root[/split], then a class.

    ``ann_file`` is a path as it stands or below ``root``. The class is a name or a number counted
    from 0 (a name if both are possible). A tab may part the two; without one the class is what
    follows the last blank. Blank lines and lines with '#' in front are skipped. Files that do not
    exist stay in the list and are found by the check of the data set.
    ``vocabulary`` is what words and numbers mean if that is more than the ``classes`` asked for.
    """
    source, prefix = locate_split(root, split)
    path = Path(ann_file).expanduser()
    rows = _read_rows(path if path.is_file() else Path(root).expanduser() / path)
    known = tuple(vocabulary or classes or _classes_of([word for _, _, word in rows]))
    chosen = check_class_names(classes) if classes is not None else known
    number = {name: i for i, name in enumerate(known)}
    place = {name: i for i, name in enumerate(chosen)}
    layout = Layout(source, prefix, [], [], chosen)
    seen: dict[str, int] = {}
    for line, name, word in rows:
        label = number.get(word, int(word) if word.isdecimal() else -1)
        if not 0 <= label < len(known):
            hint = did_you_mean(word, known)
            raise UserError(
                f"{ann_file}, line {line}: class '{word}' is none of the {len(known)} "
                f"classes{'; ' + hint if hint else ''} (numbers count from 0 to {len(known) - 1})"
            )
        if seen.setdefault(name, label) != label:
            raise UserError(
                f"{ann_file}, line {line}: '{name}' is listed with two different classes"
            )
        if known[label] in place:
            layout.names.append(name)
            layout.labels.append(place[known[label]])
    if not layout.names:
        raise UserError(f"{ann_file} lists no image of the classes {name_some(chosen, 5)}")
    return layout


def _read_rows(path: Path) -> list[tuple[int, str, str]]:
    if not path.is_file():
        raise UserError(
            f"there is no annotation file {path} (nor one of this name in {Path.cwd()})"
        )
    try:
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except UnicodeDecodeError as error:
        raise UserError(f"{path} is not UTF-8 text") from error
    rows = []
    for number, line in enumerate(lines, start=1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        parts = line.strip().rsplit("\t" if "\t" in line.strip() else None, 1)
        if len(parts) != 2 or not parts[1].strip():
            raise UserError(
                f"{path}, line {number}: '{line.strip()}' names no class; expected '<path of the "
                "image> <class name or number>'"
            )
        rows.append((number, parts[0].strip().replace("\\", "/"), parts[1].strip()))
    if not rows:
        raise UserError(f"{path} lists no image")
    return rows


def _classes_of(words: list[str]) -> tuple[str, ...]:
    if "0" in words and all(word.isdecimal() for word in words):
        return tuple(str(i) for i in range(max(map(int, words)) + 1))
    return tuple(sorted(set(words)))
