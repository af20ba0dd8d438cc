"""The plan of a training that counts iterations: samplers, schedules, validation, checkpoints."""

from __future__ import annotations

import pytest

from polaformer.config import iterations
from polaformer.config.plan import Plan, Steps
from polaformer.config.tasks import task_of


def config(loop=None, scheduler=None, sampler="polaformer.InfiniteSampler", **further):
    return dict(
        train_cfg=dict(max_iters=100, val_interval=20, **(loop or {})),
        train_dataloader=dict(sampler=dict(type=sampler)),
        val_dataloader=dict(sampler=dict(type="polaformer.EpochSampler")),
        param_scheduler=scheduler,
        **further,
    )


def told(findings) -> list[tuple[str, str, bool]]:
    return [(finding.key, finding.text, finding.note) for finding in findings]


def test_a_sound_config():
    cfg = config(scheduler=dict(type="polaformer.WarmupPolyLR", warmup_iters=10))
    assert told(iterations.samplers(cfg)) == told(iterations.schedules(cfg)) == []
    assert iterations.length(cfg) == 100
    assert iterations.pauses(cfg) == (
        "validation every 20 iterations, 5 times; checkpoint every 20 iterations, 5 times",
        [],
    )


@pytest.mark.parametrize(
    "scheduler, key, text, note",
    [
        (
            dict(type="PolyLR", power=0.9, end=100),
            "param_scheduler.by_epoch",
            "counts epochs, which this training never ends",
            False,
        ),
        (
            [dict(type="LinearLR", by_epoch=False, end=101)],
            "param_scheduler.0.end",
            "warm-up of 101 iterations, but training ends after 100: never the full rate",
            False,
        ),
        (
            [
                dict(type="LinearLR", by_epoch=False, end=10),
                dict(type="PolyLR", by_epoch=False, begin=10, end=80),
            ],
            "param_scheduler.1.end",
            "80, but training goes on to 100 iterations: the rate stays as it is then",
            True,
        ),
        (
            dict(type="PolyLR", by_epoch=False, end=160),
            "param_scheduler.end",
            "160, but training ends after 100 iterations: the schedule is cut off",
            True,
        ),
        (
            dict(type="PolyLR", by_epoch=False, begin=100, end=160),
            "param_scheduler.begin",
            "100: never starts within 100 iterations",
            True,
        ),
        (
            dict(type="polaformer.WarmupPolyLR", warmup_iters=20),
            "param_scheduler.warmup_iters",
            "20 is more than a tenth of 100 iterations; shortened to 10",
            True,
        ),
        (
            dict(type="MultiStepLR", by_epoch=False, milestones=[80, 120]),
            "param_scheduler.milestones",
            "120 never come: training ends after 100 iterations",
            True,
        ),
        (
            dict(type="MultiStepLR", by_epoch=False, milestones=[120]),
            "param_scheduler.milestones",
            "120 never come: training ends after 100 iterations, the rate never falls",
            False,
        ),
    ],
)
def test_schedules(scheduler, key, text, note):
    found = told(iterations.schedules(config(scheduler=scheduler)))
    assert len(found) == 1, found
    assert found[0][0] == key
    assert text in found[0][1]
    assert found[0][2] == note


def test_several_schedules_up_to_the_end():
    entries = [
        dict(type="LinearLR", by_epoch=False, end=10),
        dict(type="PolyLR", by_epoch=False, begin=10, end=100),
    ]
    assert told(iterations.schedules(config(scheduler=entries))) == []


@pytest.mark.parametrize("length", [0, -3])
def test_no_iteration(length):
    cfg = dict(train_cfg=dict(max_iters=length))
    assert told(iterations.schedules(cfg)) == [
        ("train_cfg.max_iters", f"{length}; allowed: 1 and more", False)
    ]
    assert iterations.pauses(cfg) == ("", [])


@pytest.mark.parametrize("kind", ["polaformer.EpochSampler", "DefaultSampler"])
def test_a_stream_that_ends_before_the_training(kind):
    ((key, text, _),) = told(iterations.samplers(config(sampler=kind)))
    assert key == "train_dataloader.sampler"
    assert "but train_cfg counts iterations; write dict(type='polaformer.InfiniteSampler'" in text


def test_a_stream_that_never_ends():
    cfg = config()
    cfg["train_cfg"] = dict(max_epochs=3)
    cfg["val_dataloader"]["sampler"]["type"] = "InfiniteSampler"
    first, second = told(iterations.samplers(cfg))
    assert first[0] == "train_dataloader.sampler"
    assert "never ends, but train_cfg counts epochs" in first[1]
    assert second[0] == "val_dataloader.sampler"
    assert "so val would not either" in second[1]
    assert "shuffle=False" in second[1]


def test_a_batch_sampler_has_no_place():
    cfg = config()
    cfg["train_dataloader"]["batch_sampler"] = dict(type="AspectRatioBatchSampler")
    ((key, text, _),) = told(iterations.samplers(cfg))
    assert key == "train_dataloader.batch_sampler"
    assert "leave batch_sampler out" in text


def test_pauses_after_the_end():
    cfg = config(dict(val_begin=200))
    cfg["train_cfg"]["val_interval"] = 300
    cfg["default_hooks"] = dict(checkpoint=dict(interval=500))
    text, found = iterations.pauses(cfg)
    assert text == "validation after the last iteration; checkpoint after the last iteration"
    assert told(found) == [
        (
            "train_cfg.val_interval",
            "300 is more than 100 iterations: validated once, after the last",
            True,
        ),
        (
            "train_cfg.val_begin",
            "200 is more than 100 iterations: never validated; write val_begin=1",
            False,
        ),
        (
            "default_hooks.checkpoint.interval",
            "500 is more than 100 iterations: saved once, after the last",
            True,
        ),
    ]


def test_without_validation_only_checkpoints():
    cfg = config(default_hooks=dict(checkpoint=dict(interval=30)))
    cfg["val_dataloader"] = None
    assert iterations.pauses(cfg) == ("checkpoint every 30 iterations, 4 times", [])


def test_length_in_the_plan():
    """80,000 steps of 4 x 4 images are 63.3 passes over 20,210."""
    steps = Steps(80_000 * 16 / 20_210, 1264, 4, 4, iterations=80_000)
    assert (steps.total, steps.global_batch) == (80_000, 16)
    assert str(steps) == "80,000 iterations = 63.3 epochs of 1,264 (batch 4 x 4 processes)"
    plan = Plan("x", steps=steps, pauses="validation every 8,000 iterations, 10 times")
    assert ("on the way", "validation every 8,000 iterations, 10 times") in plan.rows()
    assert plan.to_dict()["steps"]["total"] == 80_000


@pytest.mark.parametrize(
    "model, task",
    [
        (dict(type="polaformer.Segmentor", decode_head={}), "segmentation"),
        (dict(type="RetinaNet", bbox_head={}), "detection"),
        (dict(type="polaformer.ImageClassifier", head={}), "classification"),
        (dict(type="Mine", head={}), None),
        (None, None),
    ],
)
def test_task(model, task):
    assert task_of(dict(model=model)) == task
