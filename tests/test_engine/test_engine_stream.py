"""The endless stream of samples: its order, its parts for several processes, its middle."""

from __future__ import annotations

import itertools

import pytest
import torch
from engine_toy import ToyDataset
from torch.utils.data import DataLoader

from polaformer.engine import data as data_module
from polaformer.engine.data import EpochSampler, InfiniteSampler, SeededDataset
from polaformer.errors import UserError


def stream_of(rank, world, monkeypatch, count=7, start=0, length=40, **options):
    monkeypatch.setattr(data_module, "get_dist_info", lambda: (rank, world))
    sampler = InfiniteSampler(range(count), **options)
    sampler.set_start(start)
    return [(int(index), index.seed) for index in itertools.islice(sampler, length)]


def test_the_passes_are_those_of_the_sampler_by_epochs(monkeypatch):
    found = stream_of(0, 1, monkeypatch, seed=3, length=21)
    sampler = EpochSampler(range(7), seed=3)
    expected = []
    for epoch in range(3):
        sampler.set_epoch(epoch)
        expected += [(int(index), index.seed) for index in sampler]
    assert found == expected
    orders = [[index for index, _ in found[7 * k : 7 * k + 7]] for k in range(3)]
    assert [sorted(order) for order in orders] == [list(range(7))] * 3
    assert orders[0] != orders[1] != orders[2] != orders[0]


def test_without_shuffling_the_order_is_that_of_the_data(monkeypatch):
    assert [i for i, _ in stream_of(0, 1, monkeypatch, shuffle=False, length=9)] == [
        *range(7),
        0,
        1,
    ]


@pytest.mark.parametrize("world, batch", [(1, 4), (2, 2), (3, 2), (3, 5)])
def test_processes_share_the_batches_of_one_process(monkeypatch, world, batch):
    """7 samples: no batch and no number of processes divides them, passes meet inside batches."""
    joint, steps = world * batch, 6
    single = stream_of(0, 1, monkeypatch, seed=1, length=joint * steps)
    parts = [
        stream_of(rank, world, monkeypatch, seed=1, length=batch * steps) for rank in range(world)
    ]
    for step in range(steps):
        found = [entry for part in parts for entry in part[step * batch : (step + 1) * batch]]
        assert sorted(found) == sorted(single[step * joint : (step + 1) * joint])


@pytest.mark.parametrize("world", [1, 2, 3])
@pytest.mark.parametrize("start", [0, 5, 7, 12, 30])
def test_the_stream_may_begin_anywhere(monkeypatch, world, start):
    """Also after samples of another number of processes: none is left out, none comes twice."""
    whole = stream_of(0, 1, monkeypatch, seed=5, length=start + 12 * world)
    parts = [
        stream_of(rank, world, monkeypatch, seed=5, start=start, length=12) for rank in range(world)
    ]
    assert [entry for turn in zip(*parts, strict=True) for entry in turn] == whole[start:]


@pytest.mark.parametrize("world, length", [(1, 7), (2, 4), (3, 3)])
def test_the_length_is_that_of_a_pass(monkeypatch, world, length):
    monkeypatch.setattr(data_module, "get_dist_info", lambda: (0, world))
    assert len(InfiniteSampler(range(7))) == length


def test_an_empty_stream_is_refused():
    with pytest.raises(UserError, match="holds no sample"):
        InfiniteSampler([])


@pytest.mark.parametrize("workers", [0, 2])
def test_augmentation_in_the_middle_of_the_stream_needs_no_history(workers):
    dataset = SeededDataset(ToyDataset(count=5))

    def batches(start, number):
        sampler = InfiniteSampler(dataset, seed=2)
        sampler.set_start(start)
        loader = DataLoader(dataset, 3, sampler=sampler, num_workers=workers)
        return [batch["inputs"] for batch in itertools.islice(loader, number)]

    whole, rest = batches(0, 4), batches(6, 2)
    assert torch.equal(torch.cat(whole[2:]), torch.cat(rest))
    assert not torch.equal(whole[0], whole[1])
