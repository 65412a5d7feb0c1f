"""Memory that a session reads or writes itself, made once for many runs."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from types import MappingProxyType

import numpy as np

from ox.graph.contract import DTYPES, Array, TensorInfo

FIXED: Mapping[str, int] = MappingProxyType({})  # no dimension has a name


def bindable(infos: Sequence[TensorInfo], dims: Collection[str] = ()) -> bool:
    """Whether nothing but the number of rows, and the dimensions of these names, varies, in types that a buffer can
    hold."""
    return all(
        info.dtype not in ("BYTES", "BF16")
        and info.dims
        and not isinstance(info.dims[0], int)
        and all(isinstance(size, int) or size in dims for size in info.dims[1:])
        for info in infos
    )


def buffer_shape(info: TensorInfo, rows: int, sizes: Mapping[str, int] = FIXED) -> list[int]:
    """The shape of so many rows of a tensor that is `bindable`; `sizes` are those of dimensions with names."""
    return [rows, *(size if isinstance(size, int) else sizes[str(size)] for size in info.dims[1:])]


def make_buffer(info: TensorInfo, rows: int) -> Array:
    """Room for so many rows of a tensor that is `bindable`."""
    return np.empty(buffer_shape(info, rows), DTYPES[info.dtype])
