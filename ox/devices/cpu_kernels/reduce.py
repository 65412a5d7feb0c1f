"""Sums, means, norms and extremes on the compiled kernels: contiguous arrays, over all axes, the last ones, or the
first and the last ones."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from ox.devices.cpu_kernels.rowwise import Run
from ox.kernels import Library, address

SUM, MAX, MIN, MAGNITUDES, SQUARES = 0, 1, 2, 3, 4  # as in reduction.h


def over_axes(kind: int, mean: bool = False, root: bool = False) -> Run:
    """A kernel of an array and, where not all axes are meant, their numbers; with `root` the square root of its sum."""

    def run(library: Library, arrays: list[Any], attributes: dict[str, Any]) -> Any:
        x, axes = [*arrays, None][:2]
        if not x.size or not x.flags.c_contiguous:
            return None
        chosen = set(range(x.ndim))
        if axes is not None and axes.size:
            if not all(-x.ndim <= a < x.ndim for a in axes.tolist()):
                return None
            chosen = {a % x.ndim for a in axes.tolist()}
            if len(chosen) < axes.size:  # an axis twice, which is an error of the operator
                return None
        elif attributes.get("noop_with_empty_axes"):
            return None
        first = x.ndim  # of the axes at the end
        while first - 1 in chosen:
            first -= 1
        head = 0  # of those at the beginning
        while head < first and head in chosen:
            head += 1
        if first == x.ndim or len(chosen) != head + x.ndim - first:
            return None
        rows, columns = prod(x.shape[:first]), prod(x.shape[first:])
        count = columns * prod(x.shape[:head])
        if head and (kind in (MAX, MIN) or columns < 16):
            return None
        made = np.empty(rows, np.float32)
        divisor = count if mean and not head else 1
        library.ox_reduce_rows(rows, columns, kind, divisor, address(x), address(made))
        if head:
            made = made.reshape(prod(x.shape[:head]), -1).sum(axis=0, dtype=np.float64)
            made = (made / count if mean else made).astype(np.float32)
        if root:
            np.sqrt(made, out=made)
        keep = attributes.get("keepdims", 1)
        return made.reshape([1 if a in chosen else n for a, n in enumerate(x.shape) if keep or a not in chosen])

    return run


def over_images(library: Library, arrays: list[Any], attributes: dict[str, Any]) -> Any:
    """The mean of [N, C, ...] over all but the first two axes, which stay."""
    return over_axes(SUM, mean=True)(library, [arrays[0], np.arange(2, arrays[0].ndim)], {})
