"""Random numbers as a function of where a run is, not of how it got there.

Every sample and every training step gets a seed derived from the run's seed and its own place
(epoch and index; rank and iteration). Nothing random is carried from one step to the next, so a
resumed run, another number of workers or another order of arrival gives the same numbers.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch


def derive_seed(*parts: int) -> int:
    """A 63-bit seed that is a fixed function of ``parts`` (BLAKE2b over their decimal form)."""
    text = ",".join(str(int(part)) for part in parts)
    digest = hashlib.blake2b(text.encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") >> 1


def seed_cpu(seed: int) -> None:
    """Seed Python's, numpy's and torch's generators of this process, but no device's."""
    random.seed(seed)
    np.random.seed(seed % 2**32)
    torch.default_generator.manual_seed(seed)


def seed_everything(seed: int) -> None:
    """Seed all generators, those of CUDA devices included."""
    seed_cpu(seed)
    torch.manual_seed(seed)


@contextmanager
def isolated_randomness() -> Iterator[None]:
    """Put the CPU generators back afterwards, whatever was drawn or seeded inside."""
    states = random.getstate(), np.random.get_state(), torch.get_rng_state()
    try:
        yield
    finally:
        random.setstate(states[0])
        np.random.set_state(states[1])
        torch.set_rng_state(states[2])


def random_state() -> dict[str, Any]:
    """The state of all generators of this process as numbers, strings and tensors."""
    name, keys, position, has_gauss, cached = np.random.get_state()
    state = {
        "python": random.getstate(),
        "numpy": (str(name), [int(key) for key in keys], int(position), int(has_gauss), cached),
        "torch": torch.get_rng_state(),
    }
    if torch.cuda.is_available() and torch.cuda.is_initialized():
        state["cuda"] = torch.cuda.get_rng_state()
    return state


def set_random_state(state: dict[str, Any]) -> None:
    """Restore what ``random_state`` returned."""
    version, internal, gauss = state["python"]
    random.setstate((version, tuple(internal), gauss))
    name, keys, position, has_gauss, cached = state["numpy"]
    np.random.set_state((name, np.asarray(keys, dtype=np.uint32), position, has_gauss, cached))
    torch.set_rng_state(state["torch"].cpu())
    if "cuda" in state and torch.cuda.is_available():
        torch.cuda.set_rng_state(state["cuda"].cpu())
