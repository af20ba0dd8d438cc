"""The launcher: options to a run, mistakes to one message, results to files."""

from __future__ import annotations

import copy
import json
import logging
import math
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from engine_toy import ToyDataset
from mmengine.logging import print_log

from polaformer.engine import launch
from polaformer.engine.launch import TestOptions, TrainOptions, choose_device
from polaformer.engine.report import print_table
from polaformer.engine.run_card import write_json
from polaformer.engine.state import config_hash
from polaformer.errors import UserError
from polaformer.registry import DATASETS

CONFIG = """
default_scope = "polaformer"
custom_imports = dict(imports=["engine_toy"])
model = dict(type="polaformer.ToyClassifier")
loader = dict(batch_size=2, num_workers=0, collate_fn=dict(type="default_collate"))
train_dataloader = dict(
    dataset=dict(type="polaformer.ToyDataset"),
    sampler=dict(type="polaformer.EpochSampler", shuffle=True),
    **loader,
)
val_dataloader = dict(
    dataset=dict(type="polaformer.ToyDataset", count=9),
    sampler=dict(type="polaformer.EpochSampler", shuffle=False),
    **loader,
)
test_dataloader = val_dataloader
val_evaluator = dict(type="polaformer.Accuracy", topk=(1, 5))
test_evaluator = val_evaluator
train_cfg = dict(type="polaformer.EpochTrainLoop", max_epochs=2)
val_cfg = dict(type="polaformer.ValLoop")
test_cfg = dict(type="polaformer.TestLoop")
optim_wrapper = dict(type="OptimWrapper", optimizer=dict(type="SGD", lr=0.05))
default_hooks = dict(
    checkpoint=dict(type="polaformer.CheckpointHook", interval=1, save_best="top1"),
)
custom_hooks = [dict(type="EMAHook", momentum=0.1)]
randomness = dict(seed=0)
"""


@pytest.fixture
def config(tmp_path):
    path = tmp_path / "toy.py"
    path.write_text(CONFIG)
    return path


@pytest.fixture
def trained(config, tmp_path):
    launch.train(TrainOptions(config, work_dir=tmp_path / "run", device="cpu"))
    return tmp_path / "run"


def test_a_work_folder_stands_for_its_newest_whole_checkpoint(config, trained, tmp_path):
    (trained / "epoch_2.pth").write_bytes(b"")
    content = launch.test(TestOptions(config, checkpoint=trained, work_dir=tmp_path, device="cpu"))
    assert content["checkpoint"].endswith("epoch_1.pth")
    with pytest.raises(UserError, match="holds no whole checkpoint"):
        launch.test(TestOptions(config, checkpoint=tmp_path / ".."))


def test_train_then_test(config, trained, capsys):
    content = launch.test(TestOptions(config, checkpoint=trained / "epoch_2.pth", device="cpu"))
    assert json.loads((trained / "metrics.json").read_text()) == content
    rows = json.loads((trained / "predictions.json").read_text())
    assert len(rows) == content["n"]
    assert sum(row["prediction"] == row["label"] for row in rows) == round(
        content["metrics"]["top1"] * content["n"] / 100
    )
    card = json.loads((trained / "run_card.json").read_text())
    assert content["metrics"]["top1"] == pytest.approx(card["metrics"]["top1"])
    assert content["metrics"]["loss"] == pytest.approx(card["metrics"]["loss"])
    assert set(content["per_class"]) == {"a", "b", "c"}
    out = capsys.readouterr().out
    assert "Per class" in out
    assert "top1 in %" in out
    assert (trained / "config.py").exists()


def test_resume_auto_continues_and_keeps_the_story(config, trained):
    options = {"work_dir": trained, "device": "cpu", "cfg_options": ["train_cfg.max_epochs=3"]}
    runner = launch.train(TrainOptions(config, resume="auto", **options))
    assert runner.epoch == 3
    assert runner.resume_source == str(trained / "epoch_2.pth")
    card = json.loads((trained / "run_card.json").read_text())
    assert [start["epoch"] for start in card["starts"]] == [0, 2]


def test_resume_from_a_named_file(config, trained, tmp_path):
    options = {"work_dir": tmp_path / "other", "device": "cpu"}
    runner = launch.train(TrainOptions(config, resume=trained / "epoch_1.pth", **options))
    assert runner.epoch == 2
    expected = torch.load(trained / "epoch_2.pth", weights_only=True)["state_dict"]
    found = torch.load(tmp_path / "other" / "epoch_2.pth", weights_only=True)["state_dict"]
    assert all(torch.equal(expected[key], found[key]) for key in expected)


def test_resume_auto_starts_from_load_from_when_there_is_nothing(config, trained, tmp_path, capsys):
    changes = [f"load_from='{trained / 'epoch_2.pth'}'", "train_cfg.max_epochs=1"]
    options = {"work_dir": tmp_path / "new", "device": "cpu", "cfg_options": changes}
    capsys.readouterr()
    launch.train(TrainOptions(config, resume="auto", **options))
    log = capsys.readouterr().out
    assert "starting from zero" in log
    assert "4 of 4 loaded" in log


@pytest.mark.parametrize("amp", ["bf16", "fp16"])
def test_half_precision_by_a_switch(config, tmp_path, amp):
    options = {"work_dir": tmp_path / amp, "device": "cpu", "seed": 3, "amp": amp}
    runner = launch.train(TrainOptions(config, **options))
    assert runner.optim_wrapper.cast_dtype == {"bf16": torch.bfloat16, "fp16": torch.float16}[amp]
    assert runner.val_loop.dtype == runner.optim_wrapper.cast_dtype
    assert runner.seed == 3


def test_a_test_computes_in_the_number_format_of_its_checkpoint(config, tmp_path, capsys):
    run = tmp_path / "run"
    launch.train(TrainOptions(config, work_dir=run, device="cpu", amp="bf16"))
    validated = json.loads((run / "run_card.json").read_text())["metrics"]
    capsys.readouterr()

    def tested(**options) -> tuple[float, str]:
        options = {"checkpoint": run / "epoch_2.pth", "device": "cpu", **options}
        content = launch.test(TestOptions(config, work_dir=tmp_path / "test", **options))
        said = [line for line in capsys.readouterr().out.splitlines() if "number format" in line]
        return content["metrics"]["loss"], said[0].partition("number format: ")[2]

    loss, said = tested()
    assert loss == pytest.approx(validated["loss"], rel=0, abs=1e-12)
    assert said.startswith("bfloat16, as in the run that wrote epoch_2.pth")
    loss, said = tested(amp="fp16")
    assert loss != pytest.approx(validated["loss"], rel=0, abs=1e-12)
    assert said.startswith("float16, as in --amp")
    full, said = tested(cfg_options={"test_cfg.amp": None})
    assert full not in (loss, validated["loss"])
    assert said.startswith("fp32, from test_cfg.amp")
    # A file of weights alone does not say how it was trained.
    weights = torch.load(run / "epoch_2.pth", weights_only=True)["state_dict"]
    torch.save(weights, tmp_path / "weights.pth")
    assert tested(checkpoint=tmp_path / "weights.pth") == (full, "fp32, as in the config")


def test_a_failed_run_is_marked_on_its_card(config, tmp_path):
    changes = {"model.poison": list(range(3, 99)), "default_hooks.health.max_bad_steps": 2}
    text = CONFIG.replace(
        "default_hooks = dict(", 'default_hooks = dict(health=dict(type="polaformer.HealthHook"), '
    )
    config.write_text(text)
    with pytest.raises(UserError, match="2 steps in a row"):
        launch.train(TrainOptions(config, work_dir=tmp_path / "x", cfg_options=changes))
    card = json.loads((tmp_path / "x" / "run_card.json").read_text())
    assert card["status"] == "failed"
    assert "2 steps in a row" in card["starts"][0]["reason"]


def test_mistakes_are_found_together_before_anything_runs(config, tmp_path):
    config.write_text(CONFIG.replace("momentum=0.1", "momentun=0.1").replace("lr=0.05", "rl=0.05"))
    with pytest.raises(UserError) as caught:
        launch.train(TrainOptions(config, work_dir=tmp_path / "run"))
    assert "momentun" in str(caught.value)
    assert "rl" in str(caught.value)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    "change, message",
    [
        ({"device": "gpu"}, "--device gpu: expected one of auto, cpu, cuda"),
        (
            {"checkpoint": "epoch_22.pth"},
            r"epoch_22.pth does not exist. did you mean 'epoch_2.pth'",
        ),
    ],
)
def test_wrong_options(config, trained, change, message):
    options = {"checkpoint": "epoch_2.pth", "device": "cpu", **change}
    options["checkpoint"] = trained / options["checkpoint"]
    with pytest.raises(UserError, match=message):
        launch.test(TestOptions(config, **options))


def test_other_classes_in_a_test_bring_no_advice_that_only_training_can_follow(config, trained):
    options = {"checkpoint": trained / "epoch_2.pth", "device": "cpu"}
    with pytest.raises(UserError) as caught:
        launch.test(TestOptions(config, cfg_options={"model.classes": 2}, **options))
    assert "the file was trained on 3 classes (a, b, c), the config has 2" in str(caught.value)
    assert "allow_shape_mismatch" not in str(caught.value)


def test_a_name_is_not_near_for_its_suffix(config, trained):
    with pytest.raises(UserError) as caught:
        launch.test(TestOptions(config, checkpoint=trained / "nofile.pth", device="cpu"))
    assert str(caught.value).endswith("nofile.pth does not exist.")


@pytest.mark.parametrize("path", ["pola_nanoo", "pola_nanoo/epoch_2.pth", "pola_nano.pt"])
def test_a_folder_may_be_misspelt_too(tmp_path, path):
    (tmp_path / "pola_nano").mkdir()
    with pytest.raises(UserError, match=r"does not exist. did you mean 'pola_nano'\?"):
        launch._checkpoint_file(tmp_path / path)


@DATASETS.register_module()
class WarningToyDataset(ToyDataset):
    def __init__(self, count=12):
        super().__init__(count)
        print_log(f"{count} odd objects", "current", level=logging.WARNING)


def test_a_warning_of_the_data_is_said_once(config, tmp_path, capsys):
    config.write_text(CONFIG.replace("ToyDataset", "WarningToyDataset"))
    launch.train(TrainOptions(config, work_dir=tmp_path / "run", device="cpu"))
    said = capsys.readouterr()
    assert (said.out + said.err).count("12 odd objects") == 1
    log = next((tmp_path / "run").glob("*.log")).read_text()
    assert "WARNING - 12 odd objects" in log


@pytest.mark.parametrize(
    "wrapped",
    [
        lambda one: one,
        lambda one: {"type": "RepeatDataset", "dataset": one, "times": 2},
        lambda one: {"type": "ConcatDataset", "datasets": [one, {"type": "R", "dataset": one}]},
    ],
)
def test_augmentation_in_testing_reaches_every_data_set(wrapped):
    inner = [{"type": "CocoDataset", "pipeline": ["a"]} for _ in range(2)]
    outer = copy.deepcopy(wrapped(inner[0]))
    cfg = {"tta_model": {"type": "T"}, "tta_pipeline": ["b"], "test_dataloader": {"dataset": outer}}
    launch._take_tta_pipeline(cfg, TestOptions("x.py", tta=True))
    assert json.dumps(cfg).count('"pipeline": ["b"]') == json.dumps(outer).count("CocoDataset")


def test_trackers_are_switches(config, tmp_path):
    with pytest.raises(UserError, match="unknown tracker 'mlflow'; allowed: wandb, tensorboard"):
        launch.train(TrainOptions(config, work_dir=tmp_path / "x", trackers=["mlflow"]))
    options = {"work_dir": tmp_path / "x", "device": "cpu"}
    runner = launch.train(TrainOptions(config, trackers=["tensorboard"], **options))
    assert [tracker.name for tracker in runner.visualizer.trackers] == [
        "scalars.json",
        "TensorBoard",
    ]


@pytest.mark.skipif(torch.cuda.is_available(), reason="needs a machine without CUDA")
def test_cuda_where_there_is_none():
    assert choose_device("auto") == "cpu"
    with pytest.raises(UserError, match="torch sees no CUDA device"):
        choose_device("cuda")


def shown(content, capsys, monkeypatch, columns=80):
    monkeypatch.setenv("COLUMNS", str(columns))
    print_table({"checkpoint": "a/b.pth", **content})
    return capsys.readouterr().out


def test_the_table_names_the_worst_of_many_classes(capsys, monkeypatch):
    per_class = {f"class{i}": float(i) for i in range(50)} | {"unseen": None}
    content = {"metrics": {"top1": 50.0, "loss": 1.0}, "per_class": per_class}
    out = shown(content, capsys, monkeypatch, columns=50)
    assert "The 40 worst of 51 classes" in out
    assert "class39" in out
    assert "class40" not in out
    assert "Test of b.pth" in out
    both = shown(content, capsys, monkeypatch, columns=120)
    assert "Per class, lowest first" in both
    assert "class49" in both


def test_the_table_shows_any_column_of_a_metric(capsys, monkeypatch):
    cat = {"images": 3, "objects": 12, "bbox_mAP": 0.25, "bbox_mAP_50": 0.5, "segm_mAP": 0.125}
    dog = {"images": 0, "objects": 0, "bbox_mAP": None, "bbox_mAP_50": None}
    content = {
        "metrics": {"bbox_mAP": 0.25, "bbox_mAP_s": math.nan},
        "per_class": {"[cat]": cat, "dog": dog},
    }
    lines = shown(content, capsys, monkeypatch, columns=100).splitlines()
    cells = [[cell.strip() for cell in line.split("│")[1:-1]] for line in lines if "│" in line]
    assert cells == [
        ["bbox_mAP", "0.2500"],
        ["bbox_mAP_s", "n/a"],
        ["[cat]", "3", "12", "0.2500", "0.5000", "0.1250"],
        ["dog", "0", "0", "n/a", "n/a", "n/a"],
    ]


def test_eighty_classes_stand_side_by_side(capsys, monkeypatch):
    per_class = {f"class {i}": {"objects": i, "bbox_mAP": i / 80} for i in range(80)}
    out = shown({"metrics": {}, "per_class": per_class}, capsys, monkeypatch, columns=100)
    assert all(f" class {i} " in out for i in range(80))
    assert max(map(len, out.splitlines())) <= 100
    assert len(out.splitlines()) < 60


@pytest.mark.slow
def test_torchrun_trains_on_two_processes(config, tmp_path):
    """What torchrun sets is enough: no option says that there are two processes."""
    program = (
        "from polaformer.engine.launch import TrainOptions, train\n"
        f"train(TrainOptions({str(config)!r}, work_dir={str(tmp_path / 'two')!r}, device='cpu'))\n"
    )
    script = tmp_path / "go.py"
    script.write_text(f"import sys\nsys.path.insert(0, {str(Path(__file__).parent)!r})\n{program}")
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    done = subprocess.run(
        [*command, str(script)],
        capture_output=True,
        text=True,
        timeout=240,
        cwd=Path(__file__).parents[2],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr[-2000:]
    card = json.loads((tmp_path / "two" / "run_card.json").read_text())
    assert (card["processes"], card["status"], card["starts"][0]["end_iteration"]) == (
        2,
        "finished",
        6,
    )
    assert len(list((tmp_path / "two").glob("*.log"))) == 1


def test_written_json_is_strict(tmp_path):
    """JSON has no NaN; other readers stop at one."""

    def refuse(name):
        raise AssertionError(name)

    content = {"a": [1.5, math.nan], "b": {"c": -math.inf, "d": (1, None, True, "NaN")}}
    write_json(tmp_path / "x.json", content)
    read = json.loads((tmp_path / "x.json").read_text(), parse_constant=refuse)
    assert read == {"a": [1.5, None], "b": {"c": None, "d": [1, None, True, "NaN"]}}


@pytest.mark.parametrize("folder", ["file/x", "/proc/nope", "a" * 300])
def test_a_work_folder_that_cannot_be_made_is_one_message(config, tmp_path, folder):
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match=r"cannot write to the work folder.*--work-dir"):
        launch.train(TrainOptions(config, work_dir=tmp_path / folder, device="cpu"))


def test_the_hash_of_a_config_does_not_tell_where_it_runs():
    one = {"work_dir": "a", "resume": False, "model": {"type": "A"}}
    assert config_hash(one) == config_hash({**one, "work_dir": "b", "resume": True})
    assert config_hash(one) != config_hash({**one, "model": {"type": "B"}})
