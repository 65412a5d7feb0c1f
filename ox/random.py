"""Random numbers from explicit state: a key and a counter, the same bits on every device, eager and recorded."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

import numpy as np

from ox.dtypes import DType, get_default_dtype, int64

if TYPE_CHECKING:
    from ox.tensor import Tensor


class Generator:
    """A stream of random numbers: Philox 4x32-10 under a key, at a counter that moves on. `torch.Generator`.

    Args:
        seed: any int; the same seed gives the same numbers on every device.
    """

    def __init__(self, seed: int | None = None) -> None:
        self.manual_seed(secrets.randbits(63) if seed is None else seed)

    def manual_seed(self, seed: int) -> Generator:
        """Start the stream of `seed` from its beginning."""
        self._seed, self._counter = int(seed), 0
        return self

    def initial_seed(self) -> int:
        return self._seed

    def get_state(self) -> dict[str, int]:
        """Key and counter; plain numbers that go into any file."""
        return {"seed": self._seed, "counter": self._counter}

    def set_state(self, state: dict[str, int]) -> None:
        self._seed, self._counter = int(state["seed"]), int(state["counter"])


default_generator = Generator(0)
