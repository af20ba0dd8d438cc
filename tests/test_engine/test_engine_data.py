"""Order and random numbers of the data depend on seed, epoch and index, and on nothing else."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import random
import re
import signal
import subprocess
import time
from functools import partial

import numpy as np
import pytest
import torch
from engine_toy import ToyDataset
from torch.utils.data import DataLoader, Subset

from polaformer.engine import data as data_module
from polaformer.engine.data import (
    EpochSampler,
    SeededDataset,
    SeededIndex,
    dead_workers_told,
    start_worker,
)
from polaformer.engine.seeding import derive_seed, random_state, seed_everything, set_random_state
from polaformer.errors import UserError


def sampler_of(rank, world, monkeypatch, count=10, **options):
    monkeypatch.setattr(data_module, "get_dist_info", lambda: (rank, world))
    return EpochSampler(range(count), **options)


def test_an_index_keeps_its_seed_on_the_way_to_a_worker():
    index = pickle.loads(pickle.dumps(SeededIndex(7, seed=123)))
    assert (index, index.seed, [10] * (index + 1) == [10] * 8) == (7, 123, True)
    assert "abcdefgh"[index] == "h"


def test_derived_seeds_are_fixed_and_differ():
    assert derive_seed(0, 1, 2) == 4727102316523150270
    seeds = {derive_seed(a, b, c) for a in range(5) for b in range(5) for c in range(5)}
    assert len(seeds) == 125
    assert derive_seed(1, 23) != derive_seed(12, 3)
    assert all(0 <= seed < 2**63 for seed in seeds)


def test_every_epoch_is_a_new_permutation_and_repeatable(monkeypatch):
    sampler = sampler_of(0, 1, monkeypatch, seed=3)
    orders = []
    for epoch in (0, 1, 0):
        sampler.set_epoch(epoch)
        orders.append([(int(i), i.seed) for i in sampler])
    assert orders[0] == orders[2]
    assert orders[0] != orders[1]
    assert sorted(index for index, _ in orders[1]) == list(range(10))
    assert dict(orders[0])[4] != dict(orders[1])[4]


@pytest.mark.parametrize("world", [2, 3])
def test_processes_share_the_batches_of_one_process(monkeypatch, world):
    single = list(sampler_of(0, 1, monkeypatch, count=12, seed=1))
    parts = [list(sampler_of(r, world, monkeypatch, count=12, seed=1)) for r in range(world)]
    batch = 2
    for step in range(12 // (batch * world)):
        joint = {i for part in parts for i in part[step * batch : (step + 1) * batch]}
        assert joint == set(single[step * batch * world : (step + 1) * batch * world])


def test_uneven_counts(monkeypatch):
    def lengths(**options):
        return [len(sampler_of(r, 3, monkeypatch, shuffle=False, **options)) for r in range(3)]

    assert lengths() == [4, 3, 3]
    assert lengths(round_up=True) == [4, 4, 4]
    padded = [list(sampler_of(r, 3, monkeypatch, shuffle=False, round_up=True)) for r in range(3)]
    assert padded == [[0, 3, 6, 9], [1, 4, 7, 0], [2, 5, 8, 1]]
    even = sampler_of(0, 3, monkeypatch, shuffle=False)
    even.set_even(True)
    assert list(even) == [0, 3, 6]
    assert len(even) == 3


def test_an_epoch_can_start_in_the_middle(monkeypatch):
    sampler = sampler_of(1, 2, monkeypatch, seed=5)
    whole = list(sampler)
    sampler.set_start(4)
    assert list(sampler) == whole[2:]
    assert len(sampler) == len(whole)
    sampler.set_epoch(0)
    assert list(sampler) == whole
    with pytest.raises(UserError, match="cannot continue after 3 samples with 2 processes"):
        sampler.set_start(3)


def test_an_empty_dataset_is_refused():
    with pytest.raises(UserError, match="holds no sample"):
        EpochSampler([])


@pytest.mark.parametrize("workers", [0, 2])
def test_augmentation_is_the_same_with_and_without_workers(workers):
    dataset = SeededDataset(ToyDataset())
    loader = DataLoader(dataset, 3, sampler=EpochSampler(dataset, seed=2), num_workers=workers)
    seed_everything(99 + workers)
    found = torch.cat([batch["inputs"] for batch in loader])
    expected = torch.stack([dataset[index]["inputs"] for index in EpochSampler(dataset, seed=2)])
    assert torch.equal(found, expected)


def test_the_main_process_keeps_its_own_random_numbers():
    dataset = SeededDataset(ToyDataset())

    def draw():
        return random.random(), np.random.rand(), torch.rand(1).item()

    seed_everything(7)
    expected = draw()
    seed_everything(7)
    dataset[SeededIndex(3, seed=1)]
    assert draw() == expected


def test_the_wrapper_is_transparent_but_for_special_names():
    inner = ToyDataset()
    dataset = SeededDataset(inner)
    assert dataset.classes == ("a", "b", "c")
    assert len(dataset) == 12
    assert dataset[2]["indices"] == 2
    subset = SeededDataset(Subset(inner, [4]))
    index = SeededIndex(0, seed=9)
    assert torch.equal(subset.__getitems__([index])[0]["inputs"], subset[index]["inputs"])
    assert pickle.loads(pickle.dumps(dataset)).count == 12
    with pytest.raises(AttributeError, match="no_such_thing"):
        _ = dataset.no_such_thing


def test_random_state_round_trip():
    state = random_state()
    first = random.random(), np.random.randn(), torch.rand(2).tolist()
    set_random_state(state)
    assert (random.random(), np.random.randn(), torch.rand(2).tolist()) == first


class Pids:
    """The process that loads each sample."""

    def __len__(self):
        return 40

    def __getitem__(self, index):
        return os.getpid()


def pid_loader():
    return DataLoader(
        Pids(), batch_size=None, num_workers=1, worker_init_fn=partial(start_worker, None)
    )


def test_a_worker_outlives_a_signal_to_the_whole_group():
    """Batch systems send SIGTERM to every process; the main one still saves."""
    batches = iter(pid_loader())
    worker = next(batches)
    assert worker != os.getpid()
    for _ in range(2):
        subprocess.run(["kill", "-TERM", str(worker)], check=True)
    time.sleep(0.2)
    assert list(batches) == [worker] * 39


def test_a_worker_ends_when_the_main_process_says_so():
    batches = iter(pid_loader())
    next(batches)
    (worker,) = batches._workers
    worker.terminate()
    worker.join(timeout=20)
    assert worker.exitcode == 0


def test_a_killed_worker_is_one_clear_line():
    batches = iter(pid_loader())
    worker = next(batches)
    os.kill(worker, signal.SIGKILL)
    with pytest.raises(UserError) as caught, dead_workers_told():
        time.sleep(20)  # torch raises wherever the main process is
    message = str(caught.value)
    assert f"(pid {worker}) is killed by signal: Killed: " in message
    assert "train_dataloader.num_workers" in message
    assert "--resume" in message
    assert "\n" not in message


@pytest.mark.parametrize(
    "text, told",
    [
        ("DataLoader worker (pid(s) 12, 13) exited unexpectedly", "(pid(s) 12, 13) exited"),
        (
            "cannot write x: DataLoader worker (pid 7) is killed by signal: Bus error. It",
            "Bus error",
        ),
        ("CUDA error: out of memory", None),
        ("Caught ValueError in DataLoader worker process 0.", None),
    ],
)
def test_other_errors_keep_their_type(text, told):
    with pytest.raises(UserError if told else RuntimeError) as caught, dead_workers_told():
        raise RuntimeError(text)
    assert (told or text) in str(caught.value)


def test_batches_that_break_off_with_their_worker():
    """Reading what a dead process wanted to hand over fails inside torch's queue."""
    first, second = multiprocessing.Pipe()
    second.close()
    broken = "def receive(pipe):\n    return pipe.recv()\n"
    names: dict = {}
    exec(compile(broken, "/x/torch/multiprocessing/reductions.py", "exec"), names)
    with pytest.raises(UserError, match="a process that loads images is gone"), dead_workers_told():
        names["receive"](first)
    with pytest.raises(EOFError), dead_workers_told():
        first.recv()


def test_an_error_that_torch_raises_once_more_meanwhile(monkeypatch):
    again = iter([RuntimeError("DataLoader worker (pid 7) is killed by signal: Killed.")])

    class Match:
        def search(self, *args):
            for error in again:
                raise error
            return re.search(*args)

    monkeypatch.setattr(data_module, "re", Match())
    with pytest.raises(UserError, match=r"\(pid 7\) is killed"), dead_workers_told():
        raise RuntimeError("DataLoader worker (pid 7) is killed by signal: Killed.")
