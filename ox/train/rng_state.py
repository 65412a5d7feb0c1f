"""The states of all random generators of a run: those of ox, NumPy and Python. A recipe may use each of them."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from ox import random as ox_random
from ox.data.sampler import random_seed

if TYPE_CHECKING:
    from ox.train.ranks import Ranks


def seed(number: int) -> None:
    """Seeds all three."""
    ox_random.manual_seed(number)
    random.seed(number)
    np.random.seed(number % 2**32)


def draw_seed(ranks: Ranks) -> tuple[int, bool]:
    """The seed of a run whose script set none, drawn from ox's default generator of rank 0; and whether the generator
    of this rank gave the same number, so that it would repeat the draws of rank 0."""
    own = random_seed(None)
    first = ranks.broadcast(own)
    return first, own == first


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
