"""The states of all random generators of a run: those of ox, NumPy and Python. A recipe may use each of them."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from ox import random as ox_random


def seed(number: int) -> None:
    """Seeds all three."""
    ox_random.manual_seed(number)
    random.seed(number)
    np.random.seed(number % 2**32)


def get_state() -> dict[str, Any]:
    """The states of all three, in a form that `ox.save` accepts."""
    name, keys, *rest = np.random.get_state()
    return {
        "default": ox_random.get_state(),
        "numpy": [name, keys, *rest],
        "python": list(random.getstate()),
    }


def set_state(state: dict[str, Any]) -> None:
    """Restores what `get_state` returned."""
    ox_random.set_state(state["default"])
    np.random.set_state(tuple(state["numpy"]))
    version, words, gauss = state["python"]
    random.setstate((version, tuple(words), gauss))


@contextmanager
def fork_rng() -> Iterator[None]:
    """A context that restores all random states at its end, as ``torch.random.fork_rng`` does."""
    before = get_state()
    try:
        yield
    finally:
        set_state(before)
