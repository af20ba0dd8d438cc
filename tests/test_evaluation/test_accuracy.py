"""Accuracy, each sample counted once."""

from __future__ import annotations

import json
import math
import pickle
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp

from polaformer.errors import UserError
from polaformer.evaluation import Accuracy
from polaformer.registry import METRICS


def prediction(scores, label=None, index=None, loss=None) -> dict:
    sample = {"scores": torch.tensor(scores, dtype=torch.float32)}
    given = {"label": label, "index": index, "loss": loss}
    return sample | {key: value for key, value in given.items() if value is not None}


def stub(index: int) -> dict:
    """Right on images 0 to 6, wrong on 7, 8 and 9; three classes."""
    label = index % 3
    chosen = label if index <= 6 else (label + 1) % 3
    scores = [0.1, 0.1, 0.1]
    scores[chosen] = 0.8
    return prediction(scores, label, index, float(index))


def metric(classes=("a", "b", "c"), **options) -> Accuracy:
    made = Accuracy(**options)
    made.dataset_meta = {"classes": classes}
    return made


def test_ten_images_with_two_counted_twice_are_70_and_not_75_percent():
    made = metric()
    padded = [*range(10), 0, 1]
    assert sum(i <= 6 for i in padded) / len(padded) == 0.75
    made.process({}, [stub(i) for i in padded])
    results = made.evaluate(10)
    assert results["top1"] == pytest.approx(70.0)
    assert results["loss"] == pytest.approx(4.5)
    assert made.last["n"] == 10
    assert made.results == []


def test_fewer_classes_than_k_is_said_once_and_does_not_crash(monkeypatch):
    lines = []
    monkeypatch.setattr(
        "polaformer.evaluation.accuracy.print_log", lambda *a, **k: lines.append(a[0])
    )
    made = METRICS.build(dict(type="polaformer.Accuracy"))
    for _ in range(2):
        made.process({}, [stub(i) for i in range(10)])
        results = made.evaluate(10)
    assert sorted(results) == ["loss", "mean_class", "top1"]
    assert lines == ["top5 left out: there are only 3 classes"]


def test_top_k_against_sorting():
    generator = np.random.default_rng(0)
    scores = generator.random((200, 12)).astype(np.float32)
    labels = generator.integers(0, 12, 200)
    made = metric(tuple("abcdefghijkl"), topk=(1, 3, 5))
    rows = zip(scores, labels, strict=True)
    made.process({}, [prediction(s.tolist(), int(y), i) for i, (s, y) in enumerate(rows)])
    results = made.evaluate(200)
    order = np.argsort(-scores, axis=1)
    for k in (1, 3, 5):
        hit = (order[:, :k] == labels[:, None]).any(1).mean()
        assert results[f"top{k}"] == pytest.approx(100 * hit)
    confusion = np.array(made.last["confusion"])
    assert confusion.sum() == 200
    assert confusion.trace() / 2 == pytest.approx(results["top1"])


def test_classes_that_do_not_occur_are_none_and_not_in_the_mean():
    made = metric(("a", "b", "c", "d"))
    made.process(
        {},
        [
            prediction([0.9, 0.1, 0, 0], 0, 0),
            prediction([0.1, 0.9, 0, 0], 0, 1),
            prediction([0, 1, 0, 0], 1, 2),
        ],
    )
    results = made.evaluate(3)
    assert made.last["per_class"] == {"a": 50.0, "b": 100.0, "c": None, "d": None}
    assert made.last["support"] == {"a": 2, "b": 1, "c": 0, "d": 0}
    assert results["mean_class"] == 75.0
    assert results["top1"] == pytest.approx(200 / 3)
    assert made.last["confusion"] == [[1, 1, 0, 0], [0, 1, 0, 0], [0, 0, 0, 0], [0, 0, 0, 0]]
    assert "loss" not in results


def test_equal_scores_are_no_gift():
    made = metric(tuple("abcdefghij"))
    made.process({}, [prediction([0.1] * 10, i, i) for i in range(10)])
    results = made.evaluate(10)
    assert (results["top1"], results["top5"]) == (10.0, 50.0)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_scores_that_are_not_finite_count_as_wrong_and_are_reported(bad, monkeypatch):
    lines = []
    monkeypatch.setattr(
        "polaformer.evaluation.accuracy.print_log", lambda *a, **k: lines.append(a[0])
    )
    made = metric(topk=(1, 3))
    made.process({}, [prediction([1, 0, 0], 0, 0, 0.1), prediction([bad, 0, 0], 0, 1, math.nan)])
    results = made.evaluate(2)
    assert (results["top1"], results["top3"]) == (50.0, 50.0)
    assert math.isnan(results["loss"])
    assert made.last["non_finite"] == 1
    assert made.last["confusion"][0] == [1, 0, 0]
    assert len(lines) == 1
    assert "1 of 2 samples" in lines[0]
    assert "indices 1" in lines[0]


def test_labels_may_come_from_the_batch():
    made = metric()
    batch = {"labels": torch.tensor([2, 0])}
    made.process(batch, [prediction([0, 0, 1], index=0), prediction([0, 1, 0], index=1)])
    assert made.evaluate(2)["top1"] == 50.0
    with pytest.raises(UserError, match="needs labels"):
        made.process({}, [prediction([0, 0, 1], index=0)])


def test_a_label_beyond_the_head_names_num_classes():
    with pytest.raises(UserError, match="class number 3, but the model gives 3 scores"):
        metric().process({}, [prediction([0, 0, 1], 3, 0)])


def test_a_head_with_more_classes_than_the_data():
    made = metric(("a", "b"))
    made.process({}, [prediction([0.1, 0.2, 0.7], 1, 0)])
    assert made.evaluate(1)["top1"] == 0.0
    assert made.last["per_class"] == {"a": None, "b": 0.0, "class 2": None}


def test_an_empty_set_is_an_error():
    with pytest.raises(UserError, match="no sample was evaluated"):
        metric().evaluate(0)


@pytest.mark.parametrize("topk", [0, (), (1, -5), (1.5,)])
def test_wrong_topk(topk):
    with pytest.raises(UserError, match="topk="):
        Accuracy(topk=topk)


def test_a_prefix_is_put_in_front():
    made = metric(prefix="val")
    made.process({}, [stub(0)])
    assert "val/top1" in made.evaluate(1)


def test_what_is_kept_per_sample_is_small():
    made = metric(tuple(str(i) for i in range(1000)))
    made.process({}, [prediction([0.001] * 1000, 5, i, 1.0) for i in range(100)])
    assert len(pickle.dumps(made.results)) < 100 * 60


def _one_process(rank: int, port: int, results) -> None:
    address = f"tcp://127.0.0.1:{port}"
    dist.init_process_group("gloo", init_method=address, rank=rank, world_size=3)
    # 10 images on 3 processes are filled up to 12; process 2 has another, shorter last batch.
    mine = {0: [0, 3, 6, 9], 1: [1, 4, 7, 0], 2: [2, 5, 8, 1]}[rank]
    made = metric()
    for i in range(0, len(mine), 3):
        made.process({}, [stub(index) for index in mine[i : i + 3]])
    if rank == 2:
        made.results.pop()
    results[rank] = (made.evaluate(10)["top1"], made.last["n"])
    dist.destroy_process_group()


@pytest.mark.slow
def test_three_processes_agree_on_70_percent():
    import socket

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with mp.Manager() as manager:
        results = manager.dict()
        mp.spawn(_one_process, args=(port, results), nprocs=3)
        assert dict(results) == {rank: (pytest.approx(70.0), 10) for rank in range(3)}


def test_every_sample_leaves_its_prediction():
    metric = Accuracy(topk=1)
    scores = torch.tensor([[0.2, 0.8], [0.9, 0.1], [float("nan"), 0.5]])
    samples = [{"scores": s, "label": 1, "index": i} for i, s in enumerate(scores)]
    metric.process({}, [samples[2], samples[0], samples[1], samples[0]])
    metric.evaluate(3)
    rows = metric.last["predictions"]
    assert [row["index"] for row in rows] == [0, 1, 2]
    assert [row["prediction"] for row in rows] == [1, 0, None]
    assert rows[0]["score"] == pytest.approx(0.8)
    assert rows[2]["score"] is None


class Folder:
    """A data set that knows its files."""

    samples = [("a/0.png", 0), ("b/1.png", 1), ("b/2.png", 1)]


class Wrapped:
    def __init__(self, dataset) -> None:
        self.dataset = dataset


@pytest.mark.parametrize("dataset", [Folder(), Wrapped(Folder()), [1, 2, 3]])
def test_predictions_are_written_with_the_images_they_are_of(tmp_path, dataset):
    made = Accuracy(topk=1)
    made.process({}, [prediction([0.0, math.inf], 0, 2), prediction([0.25, 0.75], 1, 0)])
    made.process({}, [prediction([1.0, 0.0], 1)])
    made.evaluate(3)
    (file,) = made.write_results(tmp_path / "new", dataset)
    assert file == tmp_path / "new" / "predictions.json"
    rows = [
        {"index": 0, "label": 1, "prediction": 1, "score": 0.75},
        {"index": 2, "label": 0, "prediction": None, "score": None},
        {"index": None, "label": 1, "prediction": 0, "score": 1.0},
    ]
    assert made.last["predictions"] == rows
    if not isinstance(dataset, list):
        rows[0]["path"] = str(Path("a/0.png").absolute())
        rows[1]["path"] = str(Path("b/2.png").absolute())
    assert json.loads(file.read_text()) == rows
    assert [path.name for path in file.parent.iterdir()] == ["predictions.json"]


def test_a_data_set_of_another_size_is_told(monkeypatch):
    lines = []
    monkeypatch.setattr("polaformer.evaluation.base.print_log", lambda *a, **k: lines.append(a[0]))
    made = metric()
    made.process({}, [stub(i) for i in range(7)])
    made.evaluate(10)
    assert lines == ["Accuracy over 7 samples, but the data set has 10"]
