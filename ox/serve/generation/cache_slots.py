"""Keys and values of the texts that run: a slot for each of them, in one array for each input of the cache."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from ox.serve.generation.decoder_memory import HOST, HostMemory

Array = np.ndarray[Any, Any]


class CacheShape(NamedTuple):
    """Of the keys or values of one token in one layer."""

    heads: int
    size: int
    dtype: np.dtype[Any]

    @property
    def nbytes(self) -> int:
        return self.heads * self.size * self.dtype.itemsize


class CacheSlots:
    """Arrays [rows, heads, capacity, size]. What a row has behind the length of its text has no meaning.

    Args:
        shapes: by the name of the input.
        rows: the most texts.
        capacity: the most tokens of a text, for now.
        memory: where they lie.
        rows_there: how many rows there are for now; None for all. On the host there always are all: what was never
            written takes no memory.
    """

    def __init__(
        self,
        shapes: Mapping[str, CacheShape],
        rows: int,
        capacity: int,
        memory: HostMemory = HOST,
        rows_there: int | None = None,
    ) -> None:
        self.shapes, self.rows, self.memory = dict(shapes), rows, memory
        self.token_bytes = sum(shape.nbytes for shape in shapes.values())
        self.capacity = 0
        self.arrays: list[Any] = []  # of NumPy, or of CuPy
        self.version = 0  # of the arrays: what is bound to older ones is out of date
        self.resize(capacity, (), rows_there)

    def resize(self, capacity: int, lengths: Sequence[int], rows_there: int | None = None) -> None:
        """Other arrays; the first rows keep so many tokens.

        Raises:
            MemoryError: there is too little memory; then no row keeps anything, and the capacity is 0.
        """
        self.arrays = self.arrays or [np.empty(0)] * len(self.shapes)
        self.version += 1
        self.rows_there = self.rows if rows_there is None or self.memory.is_lazy else rows_there
        try:
            with self.memory.using():
                for place, shape in enumerate(self.shapes.values()):  # one by one: the old one's memory is free again
                    new = self.memory.zeros((self.rows_there, shape.heads, capacity, shape.size), shape.dtype)
                    self.memory.copy_rows(self.arrays[place], new, lengths)
                    self.arrays[place] = new
        except MemoryError:
            self.resize(0, (), 0)
            raise
        self.capacity = capacity

    def move(self, source: int, target: int, length: int) -> None:
        """The row `target` gets the tokens of another."""
        with self.memory.using():
            self.memory.move(self.arrays, source, target, length)

    def swap(self, one: int, other: int, length: int) -> None:
        """Two rows change places; neither has more tokens than `length`."""
        with self.memory.using():
            self.memory.swap(self.arrays, one, other, length)

    def read_blocks(self, row: int, starts: Sequence[int], size: int) -> list[Any]:
        """Copies of `size` tokens of a row from each of these places on, in the same memory."""
        with self.memory.using():
            return self.memory.read_blocks(self.arrays, row, starts, size)

    def write_blocks(self, row: int, starts: Sequence[int], size: int, blocks: Sequence[Any]) -> None:
        """What `read_blocks` returned, with its `size`, to these places."""
        with self.memory.using():
            self.memory.write_blocks(self.arrays, row, starts, size, blocks)

    def write(self, row: int, start: int, values: Sequence[Any]) -> None:
        """The tokens from `start` on."""
        with self.memory.using():
            for array, shape, value in zip(self.arrays, self.shapes.values(), values, strict=True):
                array[row, :, start : start + value.shape[1]] = self.memory.from_host(value, shape.dtype)
