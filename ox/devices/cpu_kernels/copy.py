"""Copies in another order on the compiled kernels: exchanged axes, triangles, and choices by a mask."""

from __future__ import annotations

from typing import Any

import numpy as np

from ox.dtypes import float32
from ox.kernels import Library, address

AXES = 8  # at most, as in copying.h
SMALLEST = 4096  # elements of a copy; below NumPy is as fast


def dense(library: Library, a: Any) -> Any:
    """The array itself where it is row-major, else a copy that is."""
    if a.flags.c_contiguous:
        return a
    made = contiguous(library, a)
    return np.ascontiguousarray(a) if made is None else made


def contiguous(library: Any, a: Any) -> Any:
    """A row-major copy of float32 whose axes were exchanged; None where it is something else."""
    if a.dtype != float32 or a.size < SMALLEST or not a.flags.aligned:
        return None
    sizes: list[int] = []
    steps: list[int] = []
    for size, stride in zip(a.shape, a.strides, strict=True):
        if size == 1:
            continue
        if stride <= 0 or stride % 4:
            return None
        if sizes and steps[-1] == stride // 4 * size:  # one axis with the one before
            sizes[-1], steps[-1] = sizes[-1] * size, stride // 4
        else:
            sizes.append(size)
            steps.append(stride // 4)
    if 1 not in steps or len(sizes) > AXES:
        return None
    line = steps.index(1)
    if sizes[line] < 8 or sizes[-1] < 8:
        return None
    made = library.empty(a.shape, np.float32)
    shape = np.zeros(1 + 2 * AXES, np.int64)
    shape[0], shape[1 : 1 + len(sizes)], shape[1 + AXES : 1 + AXES + len(steps)] = len(sizes), sizes, steps
    library.ox_copy(library.numbers(shape), line, address(a), address(made))
    return made


def triangle(library: Library, arrays: list[Any], attributes: dict[str, Any]) -> Any:
    """Trilu of any element type."""
    x, k = [*arrays, None][:2]
    if x.ndim < 2 or not x.size or not x.flags.c_contiguous:
        return None
    rows, columns = x.shape[-2:]
    offset = 0 if k is None else max(-rows - 1, min(int(k.reshape(-1)[0]), columns + 1))
    made = np.empty_like(x)
    library.ox_triangles(
        x.size // (rows * columns), rows, columns, x.itemsize, offset, attributes.get("upper", 1), address(x),
        address(made),
    )  # fmt: skip
    return made


def where(library: Library, arrays: list[Any], attributes: dict[str, Any]) -> Any:
    """Where of two float32 arrays of the mask's shape, or of one and a number."""
    mask, a, b = arrays
    if a.dtype != float32 or b.dtype != float32 or not mask.flags.c_contiguous or not mask.size:
        return None
    if a.shape == b.shape == mask.shape:
        a, b = dense(library, a), dense(library, b)
        made = np.empty_like(a)
        library.ox_where(mask.size, address(mask), address(a), address(b), address(made))
        return made
    x, value, when = (b, a, 1) if a.size == 1 else (a, b, 0)
    if value.size != 1 or value.ndim > mask.ndim or x.shape != mask.shape:
        return None
    x = dense(library, x)
    made = np.empty_like(x)
    library.ox_fill(mask.size, address(mask), address(x), address(made), float(value.reshape(())), when)
    return made
