"""Offset and strides of an array in the memory of the array that it is a view of."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from math import prod
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided

from ox.core.warn_once import once
from ox.devices import cuda_state
from ox.devices.channels_last import from_end, to_end
from ox.errors import ArgumentError, ShapeError

Array = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True)
class Layout:
    """Sizes, and for each dimension how many elements of memory lie between neighbours."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]

    def span(self) -> tuple[int, int]:
        """The first and the last element of memory, counted from the element [0, 0, ...]."""
        steps = [(n - 1) * s for n, s in zip(self.shape, self.strides, strict=True)]
        return sum(min(0, s) for s in steps), sum(max(0, s) for s in steps)

    def is_row_major(self) -> bool:
        """Whether the memory is that of a new array: rows after each other, without gaps."""
        expected = 1
        for size, stride in zip(reversed(self.shape), reversed(self.strides), strict=True):
            if size != 1 and stride != expected:
                return False
            expected *= size
        return True

    def overlaps(self) -> bool:
        """Whether elements share memory because a dimension is repeated (expanded)."""
        return any(n > 1 and s == 0 for n, s in zip(self.shape, self.strides, strict=True))


def layout(array: Any) -> Layout:
    """The layout of a NumPy or CuPy array."""
    return Layout(tuple(array.shape), tuple(s // array.itemsize for s in array.strides))


def address(array: Any) -> int:
    """The offset of the element [0, 0, ...]."""
    where = array.ctypes.data if isinstance(array, np.ndarray) else array.data.ptr
    return int(where)


def byte_range(array: Any) -> tuple[int, int]:
    """The addresses of the first byte of an array and of the one behind its last; nothing lies between for an empty
    array."""
    first, last = layout(array).span() if array.size else (0, -1)
    return address(array) + first * array.itemsize, address(array) + (last + 1) * array.itemsize


@dataclass(frozen=True, slots=True)
class Part:
    """A view: its own layout, that of the whole, and how many elements lie between their first ones."""

    layout: Layout
    base_layout: Layout
    offset: int

    def places(self) -> Array:
        """For each element of the part the number, in row-major order, of the same element in the whole; int64."""
        if not prod(self.layout.shape):
            return np.zeros(self.layout.shape, np.int64)
        first, last = self.base_layout.span()
        memory = np.arange(last - first + 1, dtype=np.int64)
        if not self.base_layout.is_row_major():
            numbers = np.arange(prod(self.base_layout.shape), dtype=np.int64).reshape(self.base_layout.shape)
            _strided(memory, self.base_layout, -first)[...] = numbers
        return _strided(memory, self.layout, self.offset - first).copy()


def part_of(array: Any, whole: Any) -> Part | None:
    """Offset and strides of `array` in `base_layout`; None if it is no part of it."""
    size = whole.itemsize
    distance = address(array) - address(whole)
    if type(array) is not type(whole) or array.itemsize != size or distance % size:
        return None
    part = Part(layout(array), layout(whole), distance // size)
    if array.size:
        first, last = part.layout.span()
        begin, end = part.base_layout.span()
        if not whole.size or part.offset + first < begin or part.offset + last > end:
            return None
    return part


def memory_order(array: Any) -> Any:
    """What arrays of one shape have in common when the same views of them need no copy. True for row-major ones; else
    the dimensions from the largest stride to the smallest, between which of them there are no gaps, which are repeated
    (expanded), and whether the elements of the last one are neighbours."""
    if array.flags.c_contiguous:
        return True
    sizes, strides = array.shape, array.strides
    dims = sorted((d for d in range(array.ndim) if sizes[d] != 1), key=lambda d: -abs(strides[d]))
    dense = [strides[a] == sizes[b] * strides[b] for a, b in pairwise(dims)]
    return *dims, *dense, *[strides[d] == 0 for d in dims], strides[dims[-1]] == array.itemsize


def same_place(a: Any, b: Any) -> bool:
    """Whether two arrays are element by element the same memory."""
    return a.shape == b.shape and a.strides == b.strides and a.dtype == b.dtype and address(a) == address(b)


def _strided(memory: Array, like: Layout, start: int) -> Array:
    return as_strided(memory[start:], like.shape, tuple(s * memory.itemsize for s in like.strides))


class memory_format:
    """How the elements of a tensor lie in memory: `channels_last` is [N, C, H, W] that lies as [N, H, W, C],
    `channels_last_3d` [N, C, D, H, W] as [N, D, H, W, C]; the others are row-major. `torch.memory_format`."""

    def __init__(self, name: str, dimensions: int = 0) -> None:
        """
        Args:
            dimensions: of the tensors whose channels come last; 0 for a row-major format.
        """
        self.name, self.dimensions = name, dimensions

    def __repr__(self) -> str:
        return f"ox.{self.name}"


contiguous_format, preserve_format = memory_format("contiguous_format"), memory_format("preserve_format")
channels_last, channels_last_3d = memory_format("channels_last", 4), memory_format("channels_last_3d", 5)


def lies_in(array: Array, dimensions: int, wanted: memory_format) -> bool:
    """Whether the array of a tensor with so many dimensions has its channels last, as in a format, without gaps."""
    return dimensions == wanted.dimensions and bool(to_end(array).flags.c_contiguous)


def copied_to(array: Array, dimensions: int, wanted: memory_format) -> Array:
    """A copy of such an array that has its channels last.

    Raises:
        ShapeError: the format is for another number of dimensions.
    """
    if dimensions != wanted.dimensions:
        expected, got = f"{wanted.dimensions} dimensions", f"{dimensions} dimensions"
        raise ShapeError(f"{wanted!r} is not for this tensor", expected=expected, got=got)
    return from_end(cuda_state.copy(to_end(array)))


def channels_format(wanted: Any) -> memory_format | None:
    """The format, if it has the channels last; None for row-major ones, and for None.

    Raises:
        ArgumentError: what is not a memory format.
    """
    if wanted is None:
        return None
    if not isinstance(wanted, memory_format):
        expected = "ox.contiguous_format, ox.preserve_format, ox.channels_last or ox.channels_last_3d"
        raise ArgumentError("this is not a memory format", got=repr(wanted), expected=expected)
    return wanted if wanted.dimensions else None


def check_ignored_format(wanted: Any, of: str = "new tensors") -> None:
    """What is row-major whatever format is asked for: another one warns once.

    Raises:
        ArgumentError: what is not a memory format.
    """
    if channels_format(wanted):
        text = f"{wanted!r} changes nothing for {of}, which are row-major"
        once(f"memory_format of {of}", f"{text}; x.to(memory_format={wanted!r}) gives a tensor that lies so")
