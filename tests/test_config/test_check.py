from __future__ import annotations

import functools

import pytest
from PIL import Image

from polaformer.backbones import PolaPVT
from polaformer.config.check import check_config, check_file
from polaformer.config.load import load_config

VALIDATION = """
val_dataloader = dict(
    batch_size=4,
    sampler=dict(type='DefaultSampler', shuffle=False),
    dataset=dict(type='polaformer.ImageFolder', root='data/toy', split='val'),
)
val_cfg = dict()
val_evaluator = dict(type='polaformer.Accuracy', topk=(1, 5))
"""


def make_images(root, split: str, classes=("blue", "green", "red"), per_class: int = 4) -> None:
    for name in classes:
        folder = root / "data" / "toy" / split / name
        folder.mkdir(parents=True)
        for index in range(per_class):
            Image.new("RGB", (32, 32), name).save(folder / f"{index}.png")


@pytest.fixture
def toy(tree):
    make_images(tree.root, "train")
    make_images(tree.root, "val")
    return tree


def problems(path, overrides=(), **options) -> list[str]:
    return check_file(path, overrides, sizes=False, **options).problems


def test_a_sound_config_has_a_plan(toy):
    toy.child(VALIDATION)
    plan = check_config(load_config("child.py"))
    assert plan.problems == []
    assert plan.sound
    assert plan.config == "child.py"
    assert plan.data["train"].images == 12
    assert plan.data["val"].classes == ("blue", "green", "red")
    # 12 images in batches of 4 over 10 epochs.
    assert (plan.steps.per_epoch, plan.steps.total, plan.steps.global_batch) == (3, 30, 4)
    assert plan.lr == 1e-3
    assert plan.cost.input_size == (32, 32)
    parameters = dict(plan.rows())["parameters"]
    assert parameters == f"{plan.cost.params / 1e6:.3f} M"
    # AdamW: weights, gradients and two states of four bytes each.
    assert plan.memory.weights == plan.memory.gradients == 4 * plan.cost.params
    assert plan.memory.optimizer == 8 * plan.cost.params
    assert plan.memory.activations == 4 * plan.cost.activation_bytes > 0
    assert plan.to_dict()["cost"]["flops"] == 2 * plan.cost.macs


def test_all_problems_at_once(toy):
    toy.child(
        """
        modle = 1
        model = dict(head=dict(num_classes=5), backbone=dict(drop_path_rte=0.2))
        train_dataloader = dict(batch_size=16, drop_last=True, num_worker=2)
        param_scheduler = [dict(type='LinearLR', start_factor=0.1, end=20)]
        load_from = 'nothing.pth'
        default_hooks = dict(checkpoint=dict(save_best='top1', interval=0))
        val_cfg = dict()
        """
    )
    found = problems("child.py")
    expected = {
        "modle": "did you mean 'model'?",
        "model.backbone.drop_path_rte (child.py:3)": "did you mean 'drop_path_rate'?",
        "train_dataloader.num_worker (child.py:4)": "did you mean 'num_workers'?",
        "val_dataloader": "missing",
        "val_evaluator": "missing",
        "load_from (child.py:6)": "'nothing.pth' does not exist",
        "model.head.num_classes (child.py:3)": "5, but train_dataloader.dataset has 3 classes",
        "train_dataloader.drop_last (child.py:4)": "batch_size 16, but 12 images",
        "param_scheduler.0.end (child.py:5)": "warm-up of 20 epochs",
        "default_hooks.checkpoint.save_best (child.py:7)": "there is no validation",
        "default_hooks.checkpoint.interval (child.py:7)": "allowed: 1 and more",
    }
    for key, sentence in expected.items():
        assert [line for line in found if key in line and sentence in line], (key, found)
    assert len(found) == len(expected)


def test_fewer_images_than_a_batch(toy):
    dropping = ["train_dataloader.batch_size=13", "train_dataloader.drop_last=True"]
    (problem,) = problems("recipe.py", dropping)
    assert "train_dataloader.drop_last (--cfg-options)" in problem
    assert "train_dataloader.drop_last=False or train_dataloader.batch_size=12" in problem
    keeping = check_file("recipe.py", ["train_dataloader.batch_size=13"], sizes=False)
    assert keeping.sound
    assert keeping.steps.per_epoch == 1
    assert "13 is more than the 12 training images" in keeping.notes[0]


def test_processes_share_the_images(toy):
    plan = check_file("recipe.py", sizes=False, processes=3)
    assert (plan.steps.per_epoch, plan.steps.global_batch) == (1, 12)
    (problem,) = problems("recipe.py", ["train_dataloader.drop_last=True"], processes=4)
    assert "12 images on 4 process(es)" in problem


def test_missing_data_is_a_problem_or_a_note(tree):
    (problem,) = problems("recipe.py")
    assert "train_dataloader.dataset (_base_/data.py:7)" in problem
    assert "data/toy" in problem
    plan = check_file("recipe.py", sizes=False, require_data=False)
    assert plan.sound
    assert "data/toy" in plan.notes[0]


def test_a_missing_imagenet_is_planned_with_its_published_size(tree):
    tree.child(
        """
        train_dataloader = dict(
            batch_size=128, drop_last=True, dataset=dict(_delete_=True, type='polaformer.ImageNet'))
        model = dict(head=dict(num_classes=1000))
        auto_scale_lr = dict(enable=True, base_batch_size=512)
        """
    )
    plan = check_file("child.py", sizes=False, require_data=False, processes=8)
    assert plan.problems == []
    # floor(1,281,167 / 8 / 128) batches; 1e-3 at 512 images per step becomes 2e-3 at 1,024.
    assert plan.steps.per_epoch == 1251
    assert plan.lr == pytest.approx(2e-3)
    assert "data/imagenet" in plan.notes[0]
    assert not check_file("child.py", sizes=False).sound


def test_class_lists_of_the_splits_agree(tree):
    make_images(tree.root, "train")
    make_images(tree.root, "val", classes=("blue", "red", "yellow"))
    tree.child(VALIDATION)
    (problem,) = problems("child.py")
    assert "val_dataloader.dataset" in problem
    assert "only in val: yellow" in problem
    assert "only in train: green" in problem


def test_metric_to_save_by_must_exist(toy):
    toy.child(VALIDATION)
    (problem,) = problems("child.py", ["default_hooks.checkpoint.save_best=top5"])
    assert "validation gives no 'top5'" in problem
    assert "loss, mean_class, top1" in problem
    assert problems("child.py", ["default_hooks.checkpoint.save_best=top1"]) == []
    early = "custom_hooks=[dict(type='EarlyStoppingHook', monitor='top11')]"
    (problem,) = problems("child.py", [early])
    assert "custom_hooks.0.monitor" in problem
    assert "did you mean 'top1'?" in problem


@pytest.mark.parametrize(
    "override, parts",
    [
        ("model.head.in_channels=7", ["model.head.in_channels is 7", "128"]),
        ("model.backbone.attention=LLLLL", ["LLLLL"]),
        ("model.backbone.attention=sofmax", ["softmax"]),
        ("model.backbone.attention=llss", ["letters are capital; did you mean 'LLSS'?"]),
        ("model.backbone.arch=huge", ["huge"]),
        ("optim_wrapper.optimizer.lr=0", ["optim_wrapper.optimizer.lr", "above 0"]),
        ("auto_scale_lr.enable=True", ["base_batch_size"]),
        ("train_dataloader.persistent_workers=True", ["num_workers of at least 1"]),
        ("train_dataloader.batch_size=0", ["allowed: 1 and more"]),
        ("train_cfg.max_epochs=0", ["allowed: 1 and more"]),
        ("load_from=http://x/y.pth", ["download"]),
        ("load_from=data", ["is a folder"]),
        ("load_from.checkpoint=no.pth", ["'no.pth' does not exist"]),
        ("load_from=recipe.py", ["not a weight file"]),
    ],
)
def test_one_problem(toy, override, parts):
    (problem,) = problems("recipe.py", [override])
    for part in parts:
        assert part in problem


def test_pretrained_weights_inside_the_model_must_exist(toy):
    (toy.root / "swin.pth").write_bytes(b"")
    weights = "model.backbone.init_cfg=dict(type='Pretrained', checkpoint='swim.pth')"
    (problem,) = problems("recipe.py", [weights])
    assert "model.backbone.init_cfg.checkpoint" in problem
    assert "did you mean 'swin.pth'?" in problem


def test_a_run_shortened_on_the_command_line_is_told_not_refused(toy):
    warmup = "param_scheduler = [dict(type='LinearLR', start_factor=0.1, end=2)]"
    toy.child(warmup)
    plan = check_file("child.py", ["train_cfg.max_epochs=1"], sizes=False)
    assert plan.sound
    assert any("warm-up of 2 epochs" in note for note in plan.notes)
    toy.child(f"{warmup}\ntrain_cfg = dict(max_epochs=1)")
    (problem,) = problems("child.py")
    assert "param_scheduler.0.end" in problem


def test_a_schedule_that_would_begin_after_its_end_is_refused_as_in_training(toy):
    # The recipe's cosine begins at epoch 2; mmengine ends it with the training, at epoch 1.
    (problem,) = problems("recipe.py", ["train_cfg.max_epochs=1"])
    assert "param_scheduler.1.begin" in problem
    assert "end should be larger than begin" in problem


def test_learning_rate_rule(toy):
    toy.child("auto_scale_lr = dict(enable=True, base_batch_size=8)")
    plan = check_file("child.py", sizes=False)
    assert plan.lr == pytest.approx(5e-4)
    assert "0.001 x 4 / 8" in plan.lr_rule
    off = check_file("child.py", ["auto_scale_lr.enable=False"], sizes=False)
    assert off.lr == 1e-3
    assert "meant for 8 images per step, this run has 4" in off.notes[0]


def test_an_unreadable_file_is_one_problem(toy):
    toy.write("broken.py", "model = dict(")
    plan = check_file("broken.py")
    assert not plan.sound
    assert len(plan.problems) == 1


def test_a_section_of_the_wrong_kind(toy):
    toy.child("optim_wrapper = 5\ncustom_hooks = dict(type='EMAHook')\ntrain_cfg = 'x'")
    found = problems("child.py")
    assert "optim_wrapper (child.py:2): expects a dict, got 5" in found
    assert any("custom_hooks (child.py:3): expects a list" in line for line in found)
    assert any("train_cfg (child.py:4): expects a dict" in line for line in found)


def test_one_mistake_in_the_model_does_not_hide_the_next(toy):
    toy.child(
        """
        model = dict(
            backbone=dict(attention='sofmax'),
            head=dict(los=dict(type='polaformer.ClassificationLoss')),
            data_preprocessor=dict(type='polaformer.ClsPreprocessor', mean=[1, 2]),
        )
        optim_wrapper = dict(
            constructor='polaformer.OptimConstructor', paramwise_cfg=dict(decay_rule='usul'))
        """
    )
    found = problems("child.py")
    expected = {
        "model.backbone (child.py:3)": "did you mean 'softmax'?",
        "model.head.los (child.py:4)": "did you mean 'loss'?",
        "model.data_preprocessor (child.py:5)": "mean has 2 and std 3",
        "optim_wrapper (child.py:7)": "did you mean 'usual'?",
    }
    for key, sentence in expected.items():
        assert [line for line in found if line.startswith(key) and sentence in line], (key, found)
    assert len(found) == len(expected)


def test_a_value_of_the_command_line_is_told_as_such(toy):
    (problem,) = problems("recipe.py", ["model.backbone.attention=LLXS"])
    assert problem.startswith("model.backbone (--cfg-options model.backbone.attention): attention=")
    # Two values may be meant where the sentence names neither.
    changed = ["optim_wrapper.optimizer.eps=-1", "optim_wrapper.optimizer.weight_decay=0.1"]
    (problem,) = problems("recipe.py", changed)
    assert problem.startswith(
        "optim_wrapper (_base_/schedule.py:1; --cfg-options optim_wrapper.optimizer.eps "
        "optim_wrapper.optimizer.weight_decay): Invalid epsilon value"
    )
    (problem,) = problems(
        "recipe.py", ["optim_wrapper.optimizer.eps=1e-8", "model.head.in_channels=7"]
    )
    assert "--cfg-options model.head.in_channels" in problem


def test_a_switch_is_named_where_it_is_the_mistake(toy):
    (toy.root / "README.md").write_text("words")
    plan = check_file("recipe.py", presets={"resume": "README.md"}, sizes=False)
    assert plan.problems == ["load_from (--resume): 'README.md' is not a weight file"]
    plan = check_file("recipe.py", ["load_from=no.pth"], presets={"resume": True}, sizes=False)
    assert plan.problems == []


def test_a_classifier_that_reads_an_early_stage_is_told(toy):
    plan = check_file("recipe.py", ["model.backbone.out_indices=(0,1)"], sizes=False)
    assert plan.sound
    (note,) = plan.notes
    assert note.startswith(
        "model.backbone.out_indices (--cfg-options): the head reads stage 2 of 4"
    )
    last = check_file("recipe.py", ["model.backbone.out_indices=(0,3)"], sizes=False)
    assert last.notes == []


@pytest.mark.parametrize("error", [ZeroDivisionError("by zero\nsecond line"), TypeError("no")])
@pytest.mark.parametrize("place", ["__init__", "forward"])
def test_whatever_a_model_raises_is_a_problem(toy, monkeypatch, error, place):
    """Never a traceback, and never 'sound' for a model whose first step would fail."""

    @functools.wraps(getattr(PolaPVT, place))
    def fail(*args, **kwargs):
        raise error

    monkeypatch.setattr(PolaPVT, place, fail)
    (problem,) = check_file("recipe.py").problems
    key, text = {
        "__init__": ("model.backbone (", "): polaformer.PolaPVT cannot be built: "),
        "forward": ("model (", "): ImageClassifier fails on an image of 32 x 32: "),
    }[place]
    assert problem.startswith(key)
    assert problem.endswith(f"{text}{type(error).__name__}: {str(error).splitlines()[0]}")


@pytest.mark.parametrize("root", ["5", "None", "[]"])
def test_a_data_folder_that_is_no_path(toy, root):
    toy.child(f"train_dataloader = dict(dataset=dict(root={root}))")
    found = problems("child.py")
    assert any("train_dataloader.dataset" in line and "child.py:2" in line for line in found), found


def test_no_batch_size(toy):
    toy.child("train_dataloader = dict(batch_size=None)")
    assert problems("child.py") == [
        "train_dataloader.batch_size (child.py:2): None; allowed: 1 and more"
    ]
