"""One call of a compiled kernel over many tensors; see `ox/kernels/source/optimizer.cu`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from ox.core.mode import MODE
from ox.core.tensor import TensorBase
from ox.devices.cpu_kernels import kernel_table as compiled
from ox.dtypes import float32
from ox.kernels import address

BLOCK = 16384  # elements of a block, as in optimizer.cu


class TensorTable:
    """Lines of tensors (a parameter, its gradient, its moments; None for one that is not there) for one kernel.

    Args:
        read_only: the places in a line whose tensors are only read.
    """

    def __init__(self, read_only: frozenset[int] = frozenset({1})) -> None:
        self._read_only = read_only
        self._lines: list[int] = []
        self._sizes: list[int] = []
        self._arrays: list[Any] = []  # kept alive while the kernel runs

    def add(self, tensors: list[TensorBase | None]) -> bool:
        """Takes a line, unless one of its tensors is not a whole float32 array of the CPU."""
        arrays: list[Any] = [None if t is None else t.array for t in tensors]
        for i, array in enumerate(arrays):
            if array is None:
                continue
            if type(array) is not np.ndarray or array.dtype != float32 or array.shape != arrays[0].shape:
                return False
            flags = array.flags
            if not flags.c_contiguous or (i not in self._read_only and not flags.writeable):
                return False
        self._lines += [0 if array is None else address(array) for array in arrays]
        self._lines.append(arrays[0].size)
        self._sizes.append(arrays[0].size)
        self._arrays += arrays
        return True

    def blocks(self) -> int:
        """How many blocks there are: the length of an array with one entry for each."""
        return len(_blocks(tuple(self._sizes)))

    def run(self, kernel: str, *numbers: float) -> None:
        """Runs the kernel over all lines. An array among its arguments is given by its address."""
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


def count_kernel_write(tensor: TensorBase, by: str) -> None:
    """Count a write that a kernel did in a tensor's memory, so that a backward which needs the old value notices."""
    version = tensor._shared_version()
    version[0] += 1
    version[1] = by


def scale_in_place(tensors: Sequence[TensorBase], factor: float, by: str) -> tuple[Sequence[TensorBase], bool]:
    """Multiply tensors by a number in one pass.

    Args:
        by: who writes them, for the error of a backward that needs an old value.

    Returns:
        The tensors that were left alone, because they are no whole float32 arrays of the CPU or share their memory; and
        whether there was an infinity or NaN in the others before.
    """
    if not available():
        return tensors, False
    table = TensorTable(read_only=frozenset())
    taken: list[TensorBase] = []
    left: list[TensorBase] = []
    owners = Counter(id(owner(tensor.array)) for tensor in tensors)
    for tensor in tensors:
        alone = owners[id(owner(tensor.array))] == 1
        (taken if alone and table.add([tensor]) else left).append(tensor)
    found = np.zeros(table.blocks(), np.float32)
    table.run("ox_scale", address(found), factor)
    for tensor in taken:
        count_kernel_write(tensor, by)
    return left, bool(found.any())


def sum_of_squares(tensors: Sequence[TensorBase]) -> float | None:
    """The sum of the squares of all elements; None unless all are whole float32 arrays of the CPU."""
    table = TensorTable(read_only=frozenset({0}))
    if not available() or not all(table.add([tensor]) for tensor in tensors):
        return None
    sums = np.zeros(table.blocks(), np.float64)
    table.run("ox_square_sums", address(sums))
    return float(sums.sum())


def owner(array: Any) -> Any:
    """The array whose memory this is."""
    while isinstance(array.base, np.ndarray):
        array = array.base
    return array
