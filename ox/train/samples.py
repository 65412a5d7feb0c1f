"""Batches of plain arrays from a dataset, in its own order: for models that are not ox's, such as ONNX files."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from ox.devices import cpu

Array = np.ndarray[Any, Any]


def batches(dataset: Any, size: int) -> Iterator[tuple[Array, ...]]:
    """Tuples of arrays with a leading axis of at most `size`, one array for each thing that a sample holds."""
    for start in range(0, len(dataset), size):
        rows = [dataset[i] for i in range(start, min(start + size, len(dataset)))]
        yield tuple(np.stack([plain(x) for x in column]) for column in zip(*rows, strict=True))


def plain(x: Any) -> Array:
    """A tensor, array or number as a NumPy array."""
    return cpu(x.array) if hasattr(x, "node") else np.asarray(x)
