"""Golden samples: inputs with their outputs, stored in the file, so that any runtime can check its results."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ox.dtypes import is_floating
from ox.errors import ArgumentError
from ox.export.declared_dims import Sizes
from ox.export.example_inputs import Example, read
from ox.graph.ir import Array

COUNT = 3


def synthetic(example: Example, count: int = COUNT) -> list[dict[str, Array]]:
    """Rows that look like the example's without being any of them: random values in the range of each input."""
    random = np.random.default_rng(0)
    sizes = {dim: 1 if dim == example.batch else size for dim, size in example.sizes.items()}
    one = example.cut(sizes)
    return [{name: _like(random, example, name, row.shape, sizes) for name, row in one.items()} for _ in range(count)]


def _like(random: np.random.Generator, example: Example, name: str, shape: tuple[int, ...], sizes: Sizes) -> Array:
    array = example.arrays[name]
    if array.dtype == np.bool_:
        return random.integers(0, 2, shape).astype(np.bool_)
    if is_floating(array.dtype):
        finite = array.astype(np.float64)
        finite = finite[np.isfinite(finite)]
        low, high = (finite.min(), finite.max()) if finite.size else (0.0, 1.0)
        return random.uniform(low, high, shape).astype(array.dtype)
    high = example.limit(array, sizes)  # one row has fewer places for an index to point at
    low = min(array.min(), high)
    return random.integers(low, high, shape, dtype=array.dtype, endpoint=True)


def read_samples(example: Example, samples: Any) -> list[dict[str, Array]]:
    """Real rows, in the form of an example, one by one. Raises ArgumentError where they do not fit the inputs."""
    names = list(example.arrays)
    rows = read(None, samples, names, {k: list(d) for k, d in example.dims.items()})
    for name, array in rows.arrays.items():
        if array.dtype != example.arrays[name].dtype:
            raise ArgumentError(
                f"golden samples of another type for '{name}'",
                expected=str(example.arrays[name].dtype),
                got=str(array.dtype),
            )
    count = next(iter(rows.arrays.values())).shape[0]
    one = {dim: 1 if dim == rows.batch else size for dim, size in rows.sizes.items()}
    return [rows.cut(one, start=i) for i in range(count)]


def golden_inputs(example: Example, golden: Any) -> list[Mapping[str, Array]]:
    """The golden inputs: True for synthetic ones, None or False for none, or real samples."""
    if golden is None or golden is False or example.batch is None:
        return []
    return list(synthetic(example) if golden is True else read_samples(example, golden))
