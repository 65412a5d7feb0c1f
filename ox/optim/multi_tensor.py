"""One compiled kernel over the tensors of a whole group; see `ox/kernels/source/optimizer.cu`."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

from ox.core.mode import MODE
from ox.devices import compiled
from ox.dtypes import float32
from ox.kernels import address
from ox.tensors.tensor import Tensor

BLOCK = 16384  # elements of a block, as in optimizer.cu


class TensorTable:
    """Lines of tensors (a parameter, its gradient, its moments; None for one that is not there) for one kernel."""

    def __init__(self) -> None:
        self._lines: list[int] = []
        self._sizes: list[int] = []
        self._arrays: list[Any] = []  # kept alive while the kernel runs

    def add(self, tensors: list[Tensor | None]) -> bool:
        """Takes a line, unless one of its tensors is not a whole float32 array of the CPU; the second is only read."""
        arrays: list[Any] = [None if t is None else t.array for t in tensors]
        for i, array in enumerate(arrays):
            if array is None:
                continue
            if type(array) is not np.ndarray or array.dtype != float32 or array.shape != arrays[0].shape:
                return False
            flags = array.flags
            if not flags.c_contiguous or (i != 1 and not flags.writeable):
                return False
        self._lines += [0 if array is None else address(array) for array in arrays]
        self._lines.append(arrays[0].size)
        self._sizes.append(arrays[0].size)
        self._arrays += arrays
        return True

    def run(self, kernel: str, *numbers: float) -> None:
        """Runs the kernel over all lines."""
        library = compiled.library()
        if library is None or not self._sizes:
            return
        lines, blocks = np.array(self._lines, np.int64), _blocks(tuple(self._sizes))
        getattr(library, kernel)(len(blocks), address(lines), address(blocks), *numbers)


@lru_cache(maxsize=64)
def _blocks(sizes: tuple[int, ...]) -> Any:
    """The number of its tensor and the first element of each block, int64 (blocks, 2)."""
    return np.array(
        [(number, first) for number, size in enumerate(sizes) for first in range(0, size, BLOCK)], np.int64
    ).reshape(-1, 2)


def available() -> bool:
    """Whether there are compiled kernels, and no executor is forced that they would replace."""
    return MODE.get().executor is None and compiled.library() is not None
