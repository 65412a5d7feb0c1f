"""One block of memory for what lives inside a call: values whose lives do not overlap share their place."""

from __future__ import annotations

from dataclasses import dataclass
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
    placed: list[int] = []
    total = 0
    for i in sorted(range(len(lives)), key=lambda i: -lives[i].size):
        life = lives[i]
        beside = [k for k in placed if lives[k].first <= life.last and life.first <= lives[k].last]
        at = 0
        for k in sorted(beside, key=lambda k: offsets[k]):
            if at + life.size <= offsets[k]:
                break
            at = max(at, _aligned(offsets[k] + lives[k].size))
        offsets[i] = at
        placed.append(i)
        total = max(total, at + life.size)
    return offsets, total


def aligned_block(size: int) -> np.ndarray[Any, Any]:
    """Bytes that begin at a multiple of ALIGNMENT."""
    memory = np.empty(size + ALIGNMENT, np.uint8)
    start = -memory.ctypes.data % ALIGNMENT
    return memory[start : start + size]


def _aligned(size: int) -> int:
    return -(-size // ALIGNMENT) * ALIGNMENT
