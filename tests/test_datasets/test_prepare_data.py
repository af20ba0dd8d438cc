"""The digits on disk, and the tool's answers to mistakes."""

from __future__ import annotations

import json
import os
import runpy
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from picture_sets import cut, write_classes
from PIL import Image
from sklearn.datasets import load_digits

from polaformer.datasets import ImageFolder, compare_classes
from polaformer.datasets.prepare.check import check_folder
from polaformer.datasets.prepare.digits import prepare_digits
from polaformer.errors import UserError

TOOL = Path(__file__).resolve().parents[2] / "tools" / "prepare_data.py"


@pytest.fixture(scope="module")
def digits(tmp_path_factory) -> Path:
    folder, reused = prepare_digits(tmp_path_factory.mktemp("data") / "digits", size=8)
    assert not reused
    return folder


def tool(*arguments: str, cwd: Path) -> subprocess.CompletedProcess:
    return subprocess.run(
        [sys.executable, str(TOOL), *arguments],
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=120,
    )


def test_digits_are_those_of_scikit_learn(digits):
    data = load_digits()
    train, val = ImageFolder(digits, "train"), ImageFolder(digits, "val")
    assert (len(train), len(val)) == (1438, 359)
    assert compare_classes(train, val) == []
    assert train.classes == tuple("0123456789")
    total = np.add(list(train.class_counts().values()), list(val.class_counts().values()))
    assert total.tolist() == np.bincount(data.target).tolist()
    for path, label in (*train.samples[::100], *val.samples[::50]):
        number = int(Path(path).stem.removeprefix("digit_"))
        assert data.target[number] == label
        with Image.open(path) as image:
            assert image.mode == "L"
            values = np.asarray(image).astype(float) * 16 / 255
        np.testing.assert_allclose(values, data.images[number], atol=0.05)


def test_the_split_is_stratified_and_follows_the_seed(tmp_path, digits):
    other, _ = prepare_digits(tmp_path / "other", seed=1, size=8)
    first = set(ImageFolder(digits, "val").names)
    assert first != set(ImageFolder(other, "val").names)
    share = [
        val / (val + train)
        for val, train in zip(
            ImageFolder(digits, "val").class_counts().values(),
            ImageFolder(digits, "train").class_counts().values(),
            strict=True,
        )
    ]
    assert all(abs(value - 0.2) < 0.01 for value in share)


def test_running_again_reuses_what_is_there(digits):
    before = {path: path.stat().st_mtime_ns for path in digits.rglob("*")}
    assert prepare_digits(digits, size=8) == (digits, True)
    assert {path: path.stat().st_mtime_ns for path in digits.rglob("*")} == before


def test_a_changed_or_other_folder_is_not_touched_without_force(tmp_path):
    folder, _ = prepare_digits(tmp_path / "d", size=8)
    with pytest.raises(UserError, match="seed is 0, asked for 3"):
        prepare_digits(folder, seed=3, size=8)
    victim = next((folder / "train" / "3").iterdir())
    cut(victim)
    with pytest.raises(UserError, match=rf"{victim.name} was changed.*--force"):
        prepare_digits(folder, size=8)
    victim.unlink()
    with pytest.raises(UserError, match="1 of its files are missing"):
        prepare_digits(folder, size=8)
    assert prepare_digits(folder, size=8, force=True) == (folder, False)
    assert victim.is_file()
    assert sorted(os.listdir(tmp_path)) == ["d"]


@pytest.mark.parametrize("force", [False, True])
def test_a_users_own_files_are_never_overwritten(tmp_path, force):
    own = write_classes(tmp_path / "own", per_class=1)
    with pytest.raises(UserError, match="never overwritten"):
        prepare_digits(own, force=force)
    assert len(list(own.rglob("*.jpg"))) == 3
    mixed, _ = prepare_digits(tmp_path / "mixed", size=8)
    (mixed / "train" / "3" / "mine.png").write_bytes(b"x")
    with pytest.raises(UserError, match=r"train/3/mine\.png"):
        prepare_digits(mixed, size=8, force=force)
    assert (mixed / "train" / "3" / "mine.png").exists()


def test_nothing_is_left_behind_when_writing_fails(tmp_path, monkeypatch):
    def fail(self, data):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", fail)
    with pytest.raises(UserError, match="No space left on device"):
        prepare_digits(tmp_path / "d")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "options", [{"val_fraction": 0}, {"val_fraction": 1.0}, {"size": 4}, {"seed": -1}]
)
def test_options_out_of_range(tmp_path, options):
    with pytest.raises(UserError, match=next(iter(options))):
        prepare_digits(tmp_path / "d", **options)


def test_upscaling_is_the_default(tmp_path):
    folder, _ = prepare_digits(tmp_path / "d")
    with Image.open(next((folder / "val" / "7").iterdir())) as image:
        assert image.size == (32, 32)
    assert json.loads((folder / "digits.json").read_text())["images"] == 1797


def test_check_of_own_folders_lists_all_problems(tmp_path):
    write_classes(tmp_path / "set" / "train")
    write_classes(tmp_path / "set" / "val", per_class=2)
    (tmp_path / "set" / "val" / "red").rename(tmp_path / "set" / "val" / "Red")
    (tmp_path / "set" / "train" / "white").mkdir()
    (tmp_path / "set" / "train" / "blue" / "x.txt").write_text("x")
    cut(tmp_path / "set" / "train" / "blue" / "0.jpg")
    report = check_folder(tmp_path / "set")
    text = str(report)
    assert "train: 12 images in 4 classes" in text
    assert "x.txt (no image by its name)" in text
    for words in ("without an image: white", "blue/0.jpg: cut short", "did you mean 'red'"):
        assert any(words in problem for problem in report.problems)
    assert "4 problem(s)" in text


def test_check_of_plain_class_folders(colour_folders):
    report = check_folder(colour_folders)
    assert report.problems == []
    assert str(report).endswith("no problems found")


def test_help_is_fast_and_mistakes_are_one_line_with_code_2(tmp_path):
    start = time.perf_counter()
    shown = tool("--help", cwd=tmp_path)
    assert time.perf_counter() - start < 1.5
    assert shown.returncode == 0
    assert "prepare_data.py digits" in shown.stdout
    for arguments, words in (
        (["digit"], "did you mean 'digits'"),
        (["digits", "--sead", "1"], "did you mean '--seed'"),
        (["digits", "--seed", "x"], "invalid int value"),
        ([], "required"),
        (["folder"], "--check"),
        (["folder", "--check", "nowhere"], "there is no nowhere"),
    ):
        answer = tool(*arguments, cwd=tmp_path)
        assert answer.returncode == 2
        assert words in answer.stderr
        assert len(answer.stderr.strip().splitlines()) == 1
        assert answer.stdout == ""


@pytest.mark.slow
def test_the_tool_writes_and_checks_digits(tmp_path):
    assert "written" in tool("digits", "--size", "8", cwd=tmp_path).stdout
    assert "already there" in tool("digits", "--size", "8", cwd=tmp_path).stdout
    checked = tool("folder", "--check", "data/digits", cwd=tmp_path)
    assert checked.returncode == 0
    assert "no problems found" in checked.stdout


@pytest.mark.parametrize("command", ["imagenet", "coco", "folder", "ade20k", "masks"])
def test_a_misspelt_option_is_named_even_where_it_is_required(command, capsys):
    parse_args = runpy.run_path(str(TOOL))["parse_args"]
    for words, told in (
        (["--chek", "x"], "unknown argument --chek; did you mean '--check'?"),
        ([], f"{command}: --check is required"),
    ):
        with pytest.raises(SystemExit) as caught:
            parse_args([command, *words])
        assert caught.value.code == 2
        assert told in capsys.readouterr().err


def test_every_command_has_a_help(capsys):
    tool = runpy.run_path(str(TOOL))
    for command in tool["COMMANDS"]:
        with pytest.raises(SystemExit) as caught:
            tool["parse_args"]([command, "--help"])
        assert caught.value.code == 0
        assert f"usage: prepare_data.py {command}" in capsys.readouterr().out
