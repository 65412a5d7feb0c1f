"""Checksums of samples: nested values of arrays, tensors and plain values."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from hashlib import blake2b
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ox.core.tensor import is_tensor
from ox.devices import cpu

MAX_BYTES = 1 << 28  # of a larger array, every n-th row is read


def checksum(value: Any) -> str:
    """16 hexadecimal digits, the same in all processes: of arrays with their types and shapes, of nested dicts, lists
    and tuples, numbers and texts. Of other objects the result of ``tobytes()``, else only the name of the class."""
    digest = blake2b(digest_size=8)
    _update(digest, value)
    return digest.hexdigest()


def _update(digest: Any, value: Any) -> None:
    if is_tensor(value):
        value = cpu(value.array)
    if isinstance(value, np.ndarray | np.generic):
        if value.dtype == object:
            _update(digest, value.tolist())
            return
        digest.update(f"{value.dtype.name}{value.shape}".encode())
        digest.update(_bytes(np.asarray(value)))
    elif isinstance(value, bytes):
        digest.update(f"b{len(value)}:".encode())
        digest.update(value)
    elif value is None or isinstance(value, bool | int | float | complex | str):
        text = repr(value).encode("utf-8", "surrogatepass")
        digest.update(f"{len(text)}:".encode() + text)
    elif isinstance(value, Mapping):
        digest.update(b"{")
        for key in sorted(value, key=str):
            _update(digest, str(key))
            _update(digest, value[key])
        digest.update(b"}")
    elif callable(getattr(value, "tobytes", None)):  # an image of Pillow
        digest.update(type(value).__name__.encode() + value.tobytes())
    elif isinstance(value, Iterable):
        digest.update(b"[")
        for each in value:
            _update(digest, each)
        digest.update(b"]")
    else:
        digest.update(type(value).__name__.encode())


def _bytes(array: NDArray[Any]) -> Any:
    if array.nbytes > MAX_BYTES:
        array = array[:: -(-array.nbytes // MAX_BYTES)]
    array = np.ascontiguousarray(array)
    return array.tobytes() if not array.size else array.reshape(-1).view(np.uint8).data
