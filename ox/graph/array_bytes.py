"""The bytes of arrays as ONNX files have them, piece by piece, so that no second copy of large weights is in memory."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import numpy as np

from ox.dtypes import PACKED
from ox.graph.ir import Array

PIECE_BYTES = 1 << 24


def length_of(array: Array) -> int:
    """How many bytes `pieces` are together."""
    return sum(map(len, pieces(array))) if array.dtype in PACKED else array.nbytes


def pieces(array: Array) -> Iterator[Any]:
    """Little-endian, in row-major order; parts of the array's own memory where it is so."""
    if array.dtype in PACKED:  # two or four elements a byte
        from onnx import numpy_helper

        yield numpy_helper.from_array(np.ascontiguousarray(array)).raw_data
        return
    if array.dtype.byteorder == ">" or (sys.byteorder == "big" and array.dtype.byteorder != "<"):
        array = array.astype(array.dtype.newbyteorder("<"))
    flat = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    for start in range(0, flat.size, PIECE_BYTES):
        yield flat[start : start + PIECE_BYTES].data


def same_bits(x: Array, y: Array) -> bool:
    """Whether arrays of one type and shape hold the same, the sign of zero and the bits of NaN included."""
    if x.dtype.hasobject:
        return bool(x.tolist() == y.tolist())
    x, y = (np.ascontiguousarray(array).reshape(-1).view(np.uint8) for array in (x, y))
    starts = range(0, x.size, PIECE_BYTES)
    return all(np.array_equal(x[i : i + PIECE_BYTES], y[i : i + PIECE_BYTES]) for i in starts)


def slices(array: Array) -> Iterator[Array]:
    """Parts of an array, in place: all of its elements, about `PIECE_BYTES` at a time."""
    flat = array.reshape(-1)
    step = max(1, PIECE_BYTES // max(1, array.itemsize))
    for start in range(0, flat.size, step):
        yield flat[start : start + step]
