"""All random numbers of a run: ox's own, and NumPy's and Python's, which a page may draw from all the same."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

import ox.random


def seed(number: int) -> None:
    """Begin all three anew."""
    ox.random.manual_seed(number)
    random.seed(number)
    np.random.seed(number % 2**32)


def get_state() -> dict[str, Any]:
    """As `ox.save` takes it."""
    name, keys, *rest = np.random.get_state()
    return {
        "default": ox.random.get_state(),
        "numpy": [name, keys, *rest],
        "python": list(random.getstate()),
    }


def set_state(state: dict[str, Any]) -> None:
    """Go on from what `get_state` gave."""
    ox.random.set_state(state["default"])
    np.random.set_state(tuple(state["numpy"]))
    version, words, gauss = state["python"]
    random.setstate((version, tuple(words), gauss))


@contextmanager
def kept() -> Iterator[None]:
    """What is drawn inside is drawn again afterwards."""
    before = get_state()
    try:
        yield
    finally:
        set_state(before)
