"""Kernels of rows: softmax along the last axis, cross entropy, rows that are taken from or added at places."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ox.kernels import Library, address

Run = Callable[[Library, list[Any], dict[str, Any]], Any]


def of_rows(name: str) -> Run:
    """A kernel along the last axis, of one or two arrays of one shape."""

    def run(library: Library, arrays: list[Any], attributes: dict[str, Any]) -> Any:
        x = arrays[0]
        if attributes.get("axis", -1) not in (-1, x.ndim - 1) or not x.size:
            return None
        if not all(a.flags.c_contiguous and a.shape == x.shape for a in arrays):
            return None
        y, columns = np.empty_like(x), x.shape[-1]
        getattr(library, name)(x.size // columns, *[address(a) for a in arrays], address(y), columns)
        return y

    return run


def cross_entropy(library: Library, arrays: list[Any], attributes: dict[str, Any]) -> Any:
    """CrossEntropy."""
    scores, target = arrays
    rows, classes = scores.shape
    if not scores.size or target.shape != (rows,) or not scores.flags.c_contiguous:
        return None
    target = np.ascontiguousarray(target, np.int64)
    losses, logs = np.empty(rows, np.float32), np.empty(rows, np.float32)
    library.ox_cross_entropy(
        rows, address(scores), address(target), address(losses), address(logs), attributes.get("ignore_index", -100),
        classes,
    )  # fmt: skip
    return losses, logs


def mean_cross_entropy(library: Library, arrays: list[Any], attributes: dict[str, Any]) -> Any:
    """MeanCrossEntropy."""
    found = cross_entropy(library, arrays, attributes)
    if found is None:
        return None
    losses, logs = found
    count = np.float32(losses.size - np.count_nonzero(arrays[1] == attributes.get("ignore_index", -100)))
    loss = np.add.reduce(losses) / count if count else np.float32(np.nan)
    return np.asarray(loss), logs, np.asarray(count)


def cross_entropy_gradient(library: Library, arrays: list[Any], attributes: dict[str, Any]) -> Any:
    """CrossEntropyGradient."""
    g, scores, target, logs = arrays
    rows, classes = scores.shape
    if not scores.size or target.shape != (rows,) or logs.shape != (rows,):
        return None
    if g.shape != (rows,):
        if g.ndim:
            return None
        g = np.full(rows, g, np.float32)
    if not (scores.flags.c_contiguous and logs.flags.c_contiguous):
        return None
    g, target = np.ascontiguousarray(g), np.ascontiguousarray(target, np.int64)
    result = np.empty_like(scores)
    library.ox_cross_entropy_backward(
        rows, address(g), address(scores), address(target), address(logs), address(result),
        attributes.get("ignore_index", -100), classes,
    )  # fmt: skip
    return result


def gather(library: Library, arrays: list[Any], attributes: dict[str, Any]) -> Any:
    """Gather of whole rows: along the first axis."""
    rows, places = arrays
    if attributes.get("axis", 0) not in (0, -rows.ndim) or not rows.size or not places.size:
        return None
    if not rows.flags.c_contiguous or places.min() < -len(rows) or places.max() >= len(rows):
        return None
    places = np.ascontiguousarray(places, np.int64)
    result = np.empty((*places.shape, *rows.shape[1:]), np.float32)
    library.ox_take_rows(
        len(rows), places.size, rows.size // len(rows), address(places), address(rows), address(result)
    )
    return result


def index_add(library: Library, arrays: list[Any], attributes: dict[str, Any]) -> Any:
    """IndexAdd."""
    rows, places = arrays
    if not rows.size or places.shape != rows.shape[:1] or not rows.flags.c_contiguous:
        return None
    places = np.ascontiguousarray(places, np.int64)
    result = np.empty((attributes["size"], *rows.shape[1:]), np.float32)
    library.ox_index_add(
        len(result), len(rows), rows.size // len(rows), address(places), address(rows), address(result)
    )
    return result
