"""Writing safetensors files, array after array, without a copy of the whole in memory.

The library's writer creates a second file, which remains after a kill.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from ox.errors import ArgumentError

LARGEST_HEADER = 100_000_000  # bytes; the library reads no larger one
_LETTERS = {"f": "F", "i": "I", "u": "U"}


def chunks(arrays: Mapping[str, np.ndarray[Any, Any]], metadata: Mapping[str, str]) -> Iterator[bytes | memoryview]:
    """The bytes of a file, in its order: largest element types first, so that each array is aligned to its own.

    Args:
        arrays: contiguous, of bool, integers or floats, by name.
        metadata: kept in the header.

    Raises:
        ArgumentError: the header would be larger than the format allows.
    """
    order = sorted(arrays, key=lambda name: (-arrays[name].itemsize, name))
    header: dict[str, Any] = {"__metadata__": dict(metadata)}
    offset = 0
    for name in order:
        array = arrays[name]
        end = offset + array.nbytes
        header[name] = {"dtype": _name(array.dtype), "shape": list(array.shape), "data_offsets": [offset, end]}
        offset = end
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    if len(text) > LARGEST_HEADER:
        raise ArgumentError(
            "there is too much besides tensors for one file",
            expected=f"at most {LARGEST_HEADER:,} bytes of names, numbers and strings", got=f"{len(text):,} bytes",
            hint="long lists of numbers as one array",
        )  # fmt: skip
    yield len(text).to_bytes(8, "little") + text
    for name in order:
        yield as_bytes(arrays[name])


def as_bytes(array: np.ndarray[Any, Any]) -> memoryview:
    """The bytes of a contiguous array, in place."""
    return array.reshape(-1).view(np.uint8).data


def _name(dtype: np.dtype[Any]) -> str:
    return "BOOL" if dtype.kind == "b" else f"{_LETTERS[dtype.kind]}{8 * dtype.itemsize}"
