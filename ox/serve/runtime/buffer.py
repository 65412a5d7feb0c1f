"""Memory that a session reads or writes itself, made once for many runs."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ox.graph.contract import DTYPES, Array, TensorInfo


def bindable(infos: Sequence[TensorInfo]) -> bool:
    """Whether nothing but the number of rows varies, in types that a buffer can hold."""
    return all(
        info.dtype not in ("BYTES", "BF16")
        and info.dims
        and not isinstance(info.dims[0], int)
        and all(isinstance(size, int) for size in info.dims[1:])
        for info in infos
    )


def buffer_shape(info: TensorInfo, rows: int) -> list[int]:
    """The shape of so many rows of a tensor that is `bindable`."""
    return [rows, *(size for size in info.dims[1:] if isinstance(size, int))]


def make_buffer(info: TensorInfo, rows: int) -> Array:
    """Room for so many rows of a tensor that is `bindable`."""
    return np.empty(buffer_shape(info, rows), DTYPES[info.dtype])
