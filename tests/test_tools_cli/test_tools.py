"""The tools as programs: each test is a subprocess, as a user starts them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from polaformer import cli
from polaformer.errors import UserError

ROOT = Path(__file__).resolve().parents[2]
TOOLS = ROOT / "tools"
RECIPES = ROOT / "configs" / "classification"
DIGITS = RECIPES / "pola-pvt-nano_digits.py"
LIGHT = """
import runpy, sys
sys.argv = ['{0}', '--help']
try:
    runpy.run_path('{0}', run_name='__main__')
except SystemExit as stop:
    assert not stop.code, stop.code
heavy = sorted({{'torch', 'mmengine', 'timm', 'numpy'}} & set(sys.modules))
sys.exit(f'imported for --help: {{heavy}}' if heavy else 0)
"""


def run(*command: object, cwd: Path = ROOT, **kwargs) -> subprocess.CompletedProcess:
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "COLUMNS": "200"}
    words = [sys.executable, *map(str, command)]
    return subprocess.run(words, cwd=cwd, env=environment, capture_output=True, text=True, **kwargs)


@pytest.mark.parametrize("tool", ["train", "test", "check"])
def test_help_answers_at_once(tool):
    fastest = 9.0
    for _ in range(3):
        start = time.perf_counter()
        done = run(TOOLS / f"{tool}.py", "--help")
        fastest = min(fastest, time.perf_counter() - start)
        assert done.returncode == 0
        assert "--cfg-options" in done.stdout
    assert fastest < 1.5


@pytest.mark.parametrize("tool", ["train", "test", "check"])
def test_help_imports_nothing_heavy(tool):
    done = run("-c", LIGHT.format(TOOLS / f"{tool}.py"))
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    "tool, words, parts",
    [
        ("train", ["x.py", "--resum"], ["unknown argument --resum", "'--resume'"]),
        ("train", ["x.py", "--workdir", "y"], ["'--work-dir'"]),
        ("train", ["x.py", "--amp", "bf61"], ["invalid choice", "'bf16'"]),
        ("train", ["x.py", "--seed", "one"], ["invalid int value: 'one'"]),
        ("train", ["x.py", "y.py"], ["unexpected argument: y.py"]),
        ("train", [], ["required: config"]),
        ("test", ["x.py"], ["required: checkpoint"]),
        ("test", ["x.py", "y.pth", "--outt", "z"], ["'--out'"]),
        ("check", ["x.py", "--processes", "0"], ["expected 1 or more"]),
        ("check", ["x.py", "--explian", "z"], ["'--explain'"]),
        ("check", ["x.py", "--explain", ""], ["--explain needs a key"]),
        ("check", ["x.py", "--explain", "model", "--json"], ["cannot be given together"]),
    ],
)
def test_wrong_command_line(tool, words, parts):
    done = run(TOOLS / f"{tool}.py", *words)
    assert done.returncode == 2
    assert done.stdout == ""
    assert "Traceback" not in done.stderr
    for part in parts:
        assert part in done.stderr


@pytest.mark.slow
def test_train_stops_at_a_misspelt_key_before_reading_data(tmp_path):
    child = tmp_path / "child.py"
    child.write_text(
        f"_base_ = '{DIGITS}'\n\nmodle = dict(backbone=dict(window_size=14))\n"
        "train_dataloader = dict(dataset=dict(root='no/such/folder'))\n"
    )
    done = run(TOOLS / "train.py", "child.py", cwd=tmp_path)
    assert done.returncode == 2
    assert "child.py:3: unknown key 'modle'; did you mean 'model'?" in done.stderr
    assert "Traceback" not in done.stderr
    assert "no/such/folder" not in done.stderr
    assert not (tmp_path / "work_dirs").exists()


@pytest.mark.slow
def test_train_stops_at_a_misspelt_override():
    done = run(TOOLS / "train.py", DIGITS, "--cfg-options", "modle.backbone.window_size=14")
    assert done.returncode == 2
    assert "--cfg-options modle.backbone.window_size: unknown key 'modle'" in done.stderr
    assert "did you mean 'model'?" in done.stderr


@pytest.mark.slow
def test_test_names_the_nearest_checkpoint(tmp_path):
    (tmp_path / "epoch_30.pth").write_bytes(b"")
    done = run(TOOLS / "test.py", DIGITS, tmp_path / "epoch_3.pth")
    assert done.returncode == 2
    assert "did you mean 'epoch_30.pth'?" in done.stderr


@pytest.mark.slow
def test_check_from_another_folder_with_a_clip_over_none(tmp_path):
    base = RECIPES / "pola-pvt-t_310e_imagenet-224.py"
    (tmp_path / "clipped.py").write_text(
        f"_base_ = '{base}'\noptim_wrapper = dict(clip_grad=dict(max_norm=1))\n"
    )
    done = run(TOOLS / "check.py", "clipped.py", "--processes", "8", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "12.924 M" in done.stdout
    assert "2.257 G multiply-adds" in done.stdout
    # 8 processes x 128 images at 5e-4 per 512 images.
    assert "0.001 = 0.0005 x 1024 / 512" in done.stdout
    assert "note: train_dataloader.dataset" in done.stdout
    done = run(
        TOOLS / "check.py", "clipped.py", "--explain", "optim_wrapper.clip_grad", cwd=tmp_path
    )
    value, first, second = done.stdout.splitlines()
    assert value == "optim_wrapper.clip_grad = {'max_norm': 1}"
    assert first == "  clipped.py:2: optim_wrapper.clip_grad = dict(max_norm=1)"
    assert second.endswith("310e.py:9: optim_wrapper.clip_grad = None")


@pytest.mark.slow
def test_check_of_several_configs_tells_which_are_sound(tmp_path):
    (tmp_path / "bad.py").write_text(f"_base_ = '{DIGITS}'\nmodle = 1\n")
    paths = ["bad.py", "missing.py", RECIPES / "pola-pvt-t_310e_imagenet-224.py"]
    done = run(TOOLS / "check.py", *paths, "--json", cwd=tmp_path)
    assert done.returncode == 1
    bad, missing, good = json.loads(done.stdout)
    assert bad["problems"][0] == "bad.py:2: unknown key 'modle'; did you mean 'model'?"
    assert "does not exist" in missing["problems"][0]
    assert good["sound"]
    assert good["cost"]["params"] == 12_923_624
    assert good["data"]["train"] == {
        "images": 1_281_167,
        "classes": 1000,
        "where": "data/imagenet",
        "present": (tmp_path / "data/imagenet").exists(),
    }


@pytest.mark.slow
def test_dry_run_of_train_shows_the_plan_and_trains_nothing(tmp_path):
    words = ["--dry-run", "--work-dir", tmp_path / "out", "--amp", "bf16"]
    recipe = RECIPES / "pola-swin-t_300e_imagenet-224.py"
    done = run(TOOLS / "train.py", recipe, *words, cwd=tmp_path)
    assert done.returncode == 1
    assert "29.286 M" in done.stdout
    assert "problem: train_dataloader.dataset" in done.stdout
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
def test_every_recipe_is_sound():
    done = run(TOOLS / "check.py", *sorted(RECIPES.glob("*.py")), "--json", timeout=500)
    plans = {Path(plan["config"]).stem: plan for plan in json.loads(done.stdout)}
    digits = {name: plan for name, plan in plans.items() if name.endswith("_digits")}
    for name, plan in plans.items():
        missing_digits = name in digits and not (ROOT / "data" / "digits").exists()
        assert plan["sound"] or missing_digits, (name, plan["problems"])
    counts = {name.split("_")[0]: plan["cost"]["params"] for name, plan in plans.items()}
    published = {"pola-pvt-s": 23.157, "pola-pvt-l": 54.367, "pola-swin-s": 50.604}
    for name, millions in published.items():
        assert counts[name] / 1e6 == pytest.approx(millions, rel=1e-3)


@pytest.mark.parametrize(
    "error, code, text",
    [
        (UserError("what and where"), 2, "error: what and where\n"),
        (KeyboardInterrupt("saved in x"), 130, "saved in x\n"),
        (KeyboardInterrupt(), 130, "stopped by Ctrl-C\n"),
    ],
)
def test_mistakes_and_interruptions_are_one_message(capsys, error, code, text):
    def main():
        raise error

    with pytest.raises(SystemExit) as caught:
        cli.run(main)
    assert caught.value.code == code
    assert capsys.readouterr().err == text


def test_faults_of_our_own_keep_their_traceback():
    with pytest.raises(ZeroDivisionError):
        cli.run(lambda: 1 / 0)
