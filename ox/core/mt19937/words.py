"""The generator: MT19937's words of 32 bits, and its state in PyTorch's bytes."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

SIZE = 624  # words of the state
STATE_BYTES = 5056
_HEAD, _TAIL = struct.Struct("<QiiQ"), struct.Struct("<dddi4xf?3x")
_TO_UNIT = 2.0**-53
_MANTISSA = (1 << 53) - 1


class Words:
    """MT19937 (Matsumoto and Nishimura, "Mersenne Twister", ACM TOMACS 8, 1998), seeded by the lower 32 bits of a
    seed; NumPy's bit generator makes the words.

    `spare` is the second normal number of a pair, which the next single draw takes: part of the state.
    """

    def __init__(self, seed: int) -> None:
        self.seed = seed % (1 << 64)
        self.spare: float | None = None
        self._bits: Any = np.random.MT19937()
        seeded: Any = np.random.RandomState(seed & 0xFFFFFFFF)
        self._bits.state = seeded.get_state(legacy=False)
        self._numbers = np.random.Generator(self._bits)
        self._fresh = True  # nothing drawn since it was seeded: PyTorch writes that differently

    def narrow(self, count: int) -> NDArray[np.uint32]:
        """`count` words of 32 bits."""
        self._fresh = self._fresh and not count
        return self._numbers.integers(0, 0xFFFFFFFF, count, np.uint32, endpoint=True)

    def wide(self, count: int) -> NDArray[np.uint64]:
        """`count` words of 64 bits, of two each, the upper half first."""
        self._fresh = self._fresh and not count
        return self._numbers.integers(0, 0xFFFFFFFFFFFFFFFF, count, np.uint64, endpoint=True)

    def doubles(self, count: int) -> NDArray[np.float64]:
        """`count` numbers in [0, 1), each from the lower 53 of 64 bits."""
        bits = self.wide(count)
        bits &= np.uint64(_MANTISSA)
        drawn: Any = bits.view(np.int64) * _TO_UNIT
        return drawn

    def floats(self, count: int) -> NDArray[np.float32]:
        """`count` numbers in [0, 1), each from the lower 24 of 32 bits."""
        bits = self.narrow(count)
        bits &= np.uint32(0xFFFFFF)
        drawn = bits.view(np.int32).astype(np.float32)
        drawn *= np.float32(2.0**-24)
        return drawn

    @contextmanager
    def one_by_one(self, expected: int) -> Iterator[Callable[[], float]]:
        """A function that gives the numbers of `doubles` one at a time, for who does not know how many it will take.
        Afterwards the state is as if only those had been drawn."""
        before, fresh = self._bits.state, self._fresh
        taken = 0

        def numbers() -> Iterator[float]:
            nonlocal taken
            while True:
                for number in self.doubles(max(expected, 16)).tolist():
                    taken += 1
                    yield number

        try:
            yield numbers().__next__
        finally:
            self._bits.state, self._fresh = before, fresh
            self.wide(taken)

    def copy(self) -> Words:
        """Another generator in the same state."""
        made = Words(0)
        made.seed, made.spare, made._fresh = self.seed, self.spare, self._fresh
        made._bits.state = self._bits.state
        return made

    def get_state(self) -> NDArray[np.uint8]:
        """uint8 [5056], the bytes of `torch.Generator.get_state()`."""
        state: Any = self._bits.state["state"]
        place = 0 if self._fresh else int(state["pos"])
        left = 1 if self._fresh else SIZE + 1 - place
        spare = self.spare
        parts = (
            _HEAD.pack(self.seed, left, 1, place),
            state["key"].astype("<u8").tobytes(),
            _TAIL.pack(0.0, spare or 0.0, 0.0, spare is not None, 0.0, False),
        )
        return np.frombuffer(b"".join(parts), np.uint8).copy()

    @classmethod
    def from_state(cls, state: NDArray[np.uint8]) -> Words:
        """Go on from those bytes. Raises ValueError for what they cannot be."""
        raw = state.tobytes()
        if len(raw) != STATE_BYTES:
            raise ValueError(f"{len(raw)} bytes")
        seed, left, seeded, place = _HEAD.unpack_from(raw)
        _, spare, _, has_spare, _, _ = _TAIL.unpack_from(raw, STATE_BYTES - _TAIL.size)
        if not seeded or not (1 <= left <= SIZE and place <= SIZE):
            raise ValueError(f"{left} words left behind word {place}")
        made = cls(seed)
        made._fresh = left == 1 and place == 0
        key = np.frombuffer(raw, "<u8", SIZE, _HEAD.size).astype(np.uint32)
        made._bits.state = {
            "bit_generator": "MT19937",
            "state": {"key": key, "pos": SIZE if left == 1 else place},
        }
        made.spare = spare if has_spare else None
        return made
