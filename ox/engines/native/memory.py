"""One block of memory for what lives inside a call: values whose lives do not overlap share their place."""

from __future__ import annotations

from bisect import insort
from dataclasses import dataclass
from math import prod
from mmap import ACCESS_COPY, mmap
from threading import Lock
from typing import Any

import numpy as np

ALIGNMENT = 64  # bytes: a line of the cache, and the widest vector


@dataclass(frozen=True)
class Life:
    """A value's size in bytes, and the first and last step during which it must keep its place."""

    size: int
    first: int
    last: int


def place(lives: list[Life]) -> tuple[list[int], int]:
    """The offset of each value, and the bytes of all: large values first, each at the lowest free place."""
    offsets = [0] * len(lives)
    placed: list[tuple[int, int, int, int]] = []  # sorted: first and end byte, first and last step
    total = 0
    for i in sorted(range(len(lives)), key=lambda i: -lives[i].size):
        life, at = lives[i], 0
        size, first, last = life.size, life.first, life.last
        for start, end, begins, ends in placed:
            if begins <= last and first <= ends:
                if at + size <= start:
                    break
                if end > at:
                    at = end
        offsets[i] = at
        insort(placed, (at, _aligned(at + size), first, last))
        total = max(total, at + size)
    return offsets, total


class SharedBlock:
    """Memory for what lives inside of a call, one block for several executables. They run one at a time, under its
    lock: the recordings of one function at different sizes, and a forward and its backward."""

    def __init__(self) -> None:
        self.lock = Lock()
        self._block = _aligned_block(0)

    def part(self, size: int) -> np.ndarray[Any, Any]:
        """The first bytes of the block; of a new one, if it is too small. Executables keep the one that they have."""
        if size > len(self._block):
            self._block = _aligned_block(size)
        return self._block[:size]


def _aligned_block(size: int) -> np.ndarray[Any, Any]:
    """Bytes that begin at a multiple of ALIGNMENT."""
    memory = np.empty(size + ALIGNMENT, np.uint8)
    start = -memory.ctypes.data % ALIGNMENT
    return memory[start : start + size]


class AddressSpace:
    """Arrays of which only the form and the address count. They lie in pages that the system provides at the first
    access, which never comes: they take no memory."""

    CHUNK = 64 << 20

    def __init__(self) -> None:
        self._chunk, self._used = mmap(-1, 1, access=ACCESS_COPY), 1

    def array(self, shape: tuple[int, ...], dtype: Any) -> np.ndarray[Any, Any]:
        size = max(1, prod(shape) * np.dtype(dtype).itemsize)
        if self._used + size > len(self._chunk):
            self._chunk, self._used = mmap(-1, max(size, self.CHUNK), access=ACCESS_COPY), 0
        made: np.ndarray[Any, Any] = np.ndarray(shape, dtype, self._chunk, self._used)
        self._used += _aligned(size)
        return made


def _aligned(size: int) -> int:
    return -(-size // ALIGNMENT) * ALIGNMENT
