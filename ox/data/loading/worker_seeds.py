"""Reproducible seeds for workers; they differ between workers and between batches."""

from __future__ import annotations

import random as python_random
from collections.abc import Callable
from hashlib import blake2b
from typing import Any

import numpy as np

from ox import random


def mix(*numbers: int) -> int:
    """A seed of 63 bits: a hash of several numbers."""
    return int.from_bytes(blake2b(repr(numbers).encode(), digest_size=8).digest()) >> 1


def _seed_numpy(seed: int) -> None:
    if random.stream_version.current > 1:
        seed = mix(seed)  # Python's generator is of the same kind, and would give the same numbers for the same seed
    np.random.seed([seed & 0xFFFFFFFF, seed >> 32])


def _numpy_state() -> Any:
    state: Any = np.random.get_state()
    return state[1].tobytes(), *state[2:]


def _ox_state() -> Any:
    if random.is_torch_compatible():
        return random.default_generator.words().get_state().tobytes()
    return random.get_state()


# per generator: a function that seeds it, and one that returns its state
_GENERATORS: dict[str, tuple[Callable[[int], Any], Callable[[], Any]]] = {
    "ox": (random.manual_seed, _ox_state),
    "numpy": (_seed_numpy, _numpy_state),
    "python": (python_random.seed, python_random.getstate),
}


def seed_all(seed: int) -> None:
    """Seed the global generators of ox, NumPy and Python."""
    for reseed, _ in _GENERATORS.values():
        reseed(seed)


def states() -> dict[str, Any]:
    """The states of all generators, for comparison."""
    return {name: state() for name, (_, state) in _GENERATORS.items()}


def unchanged_generators(before: dict[str, Any]) -> list[Callable[[int], Any]]:
    """The seeding functions of the generators that did not change since `before`: a `worker_init_fn` did not seed
    them."""
    return [reseed for name, (reseed, state) in _GENERATORS.items() if state() == before[name]]
