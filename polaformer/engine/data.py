"""Which samples a run sees, in which order, and with which random numbers.

``EpochSampler`` and ``InfiniteSampler`` fix the order by (seed, epoch) and hand out indices that
carry their own seed; ``SeededDataset`` applies that seed around the wrapped dataset's
``__getitem__``.
"""

from __future__ import annotations

import itertools
import os
import re
import signal
import threading
import traceback
from collections.abc import Callable, Iterator, Sequence, Sized
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import torch
from mmengine.dist import get_dist_info
from torch.utils.data import Sampler, get_worker_info

from polaformer.engine.seeding import derive_seed, isolated_randomness, seed_cpu
from polaformer.errors import UserError
from polaformer.registry import DATA_SAMPLERS


class SeededIndex(int):
    """An index into a dataset that knows the seed of this one visit."""

    seed: int

    def __new__(cls, value: int, seed: int) -> SeededIndex:
        index = super().__new__(cls, value)
        index.seed = seed
        return index

    def __reduce__(self) -> tuple[Any, ...]:
        return SeededIndex, (int(self), self.seed)


def start_worker(init: Callable[[int], None] | None, worker: int) -> None:
    """Start a loading process that outlives a signal to all: the main process saves and stops."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if hasattr(signal, "sigwaitinfo"):
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
        threading.Thread(target=_end_by_parent_only, daemon=True).start()
    if init is not None:
        init(worker)


def _end_by_parent_only() -> None:
    """SIGTERM counts from the main process; batch systems send it to every process."""
    while signal.sigwaitinfo([signal.SIGTERM]).si_pid != os.getppid():
        continue
    os._exit(0)


@contextmanager
def dead_workers_told() -> Iterator[None]:
    """Turn torch's error about a loading process that died, raised anywhere, into a UserError."""
    # Twice: torch may raise it once more while the first is looked at.
    with _dead_worker_told(), _dead_worker_told():
        yield


@contextmanager
def _dead_worker_told() -> Iterator[None]:
    try:
        yield
    except Exception as error:
        found = re.search(r"DataLoader worker (\(pid(?:\(s\))? [\d, ]+\) [^.\n]*)", str(error))
        # Its batches may break off before torch has noticed.
        lost = isinstance(error, ConnectionError | EOFError) and _from_torch_queue(error)
        if found is None and not lost:
            raise
        raise UserError(
            f"a process that loads images {found[1] if found else 'is gone'}: most often memory or "
            "shared memory (/dev/shm) was short. Take a smaller train_dataloader.num_workers or "
            "val_dataloader.num_workers (0 loads in the main process) and continue with --resume"
        ) from error


def _from_torch_queue(error: BaseException) -> bool:
    frames = traceback.extract_tb(error.__traceback__)
    return any("torch/multiprocessing" in Path(frame.filename).as_posix() for frame in frames)


class SeededDataset:
    """A dataset whose random numbers depend only on the seed that its index carries.

    An index without a seed is passed on as it is. In the main process the generators are put back
    after each batch, so the number of workers does not change what the model draws. Every other
    attribute is the wrapped dataset's.
    """

    def __init__(self, dataset: Any) -> None:
        self.dataset = dataset

    def __getattr__(self, name: str) -> Any:
        # Special names stay hidden: __getitems__ of a Subset would go around the seeding.
        if name.startswith("__") or name == "dataset":
            raise AttributeError(name)
        return getattr(self.dataset, name)

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitem__(self, index: int) -> Any:
        return self.__getitems__([index])[0]

    def __getitems__(self, indices: Sequence[int]) -> list[Any]:
        """A whole batch, which is what torch's loader asks for: the generators are kept once."""
        with isolated_randomness() if get_worker_info() is None else nullcontext():
            return [self._one(index) for index in indices]

    def _one(self, index: int) -> Any:
        seed = getattr(index, "seed", None)
        if seed is None:
            return self.dataset[index]
        seed_cpu(seed)
        return self.dataset[int(index)]


@DATA_SAMPLERS.register_module()
class EpochSampler(Sampler):
    """The indices of one epoch for this process, each with a seed of its own.

    One order per (seed, epoch) is dealt to the processes in turn, so step ``t`` of ``p`` processes
    with batch size ``b`` sees the same ``p * b`` samples as one process with batch size ``p * b``.

    Args:
        dataset: anything with a length.
        shuffle: a new order each epoch; otherwise 0, 1, 2, …
        seed: of the run; the runner passes its own.
        round_up: repeat samples from the front until every process has the same number. Without
            it no sample is repeated: processes may differ by one sample, or, after
            ``set_even(True)``, the rest that does not divide is left out this epoch.
    """

    def __init__(
        self,
        dataset: Sized,
        shuffle: bool = True,
        seed: int | None = 0,
        round_up: bool = False,
    ) -> None:
        if len(dataset) == 0:
            raise UserError(f"the {type(dataset).__name__} dataset holds no sample")
        self.rank, self.world_size = get_dist_info()
        self.dataset = dataset
        self.shuffle = shuffle
        self.seed = 0 if seed is None else int(seed)
        self.round_up = round_up
        self.even = False
        self.epoch = 0
        self.start = 0

    def set_epoch(self, epoch: int) -> None:
        """Choose the order of ``epoch``, from its first sample."""
        self.epoch = int(epoch)
        self.start = 0

    def set_start(self, samples: int) -> None:
        """Leave out the first ``samples`` of the epoch, counted over all processes."""
        if samples % self.world_size and samples < self.total:
            raise UserError(
                f"cannot continue after {samples} samples with {self.world_size} processes: "
                "the number does not divide; use the earlier number of processes"
            )
        self.start = int(samples)

    def set_even(self, even: bool) -> None:
        """Give every process the same number of samples, which training in step needs."""
        self.even = even

    @property
    def total(self) -> int:
        """Samples of one epoch over all processes."""
        count, world = len(self.dataset), self.world_size
        if self.round_up:
            return -(-count // world) * world
        return count // world * world if self.even else count

    def __len__(self) -> int:
        return -(-(self.total - self.rank) // self.world_size)

    def __iter__(self) -> Iterator[SeededIndex]:
        order = pass_order(len(self.dataset), self.seed, self.epoch, self.shuffle)
        for position in range(self.start + self.rank, self.total, self.world_size):
            index = order[position % len(order)]
            yield SeededIndex(index, derive_seed(self.seed, self.epoch, index))


@DATA_SAMPLERS.register_module()
class InfiniteSampler(Sampler):
    """The endless stream of indices for this process, each with a seed of its own.

    The stream is one pass over the data after the other, each in an order of its own: position
    ``p`` of ``n`` samples is number ``p % n`` of the order of (seed, ``p // n``). It is dealt to
    the processes in turn, and a batch may hold the end of one pass and the start of the next.

    Args:
        dataset: anything with a length.
        shuffle: a new order each pass; otherwise 0, 1, 2, …
        seed: of the run; the runner passes its own.
    """

    def __init__(self, dataset: Sized, shuffle: bool = True, seed: int | None = 0) -> None:
        if len(dataset) == 0:
            raise UserError(f"the {type(dataset).__name__} dataset holds no sample")
        self.rank, self.world_size = get_dist_info()
        self.dataset = dataset
        self.shuffle = shuffle
        self.seed = 0 if seed is None else int(seed)
        self.start = 0

    def set_start(self, samples: int) -> None:
        """Begin after ``samples`` of the stream, counted over all processes."""
        self.start = int(samples)

    def __len__(self) -> int:
        """Samples of one pass for one process, rounded up; the stream itself has no end."""
        return -(-len(self.dataset) // self.world_size)

    def __iter__(self) -> Iterator[SeededIndex]:
        count, current, order = len(self.dataset), -1, []
        for position in itertools.count(self.start + self.rank, self.world_size):
            number, place = divmod(position, count)
            if number != current:
                current, order = number, pass_order(count, self.seed, number, self.shuffle)
            index = order[place]
            yield SeededIndex(index, derive_seed(self.seed, number, index))


def pass_order(count: int, seed: int, number: int, shuffle: bool) -> list[int]:
    """The order in which pass ``number`` of a run goes through ``count`` samples."""
    if not shuffle:
        return list(range(count))
    generator = torch.Generator().manual_seed(derive_seed(seed, number))
    return torch.randperm(count, generator=generator).tolist()
