"""Copies of a state in reused memory."""

from __future__ import annotations

from typing import Any

import numpy as np

from ox.core.tensor import is_tensor


class Snapshot:
    """Copies nested dicts, lists and tuples of tensors and arrays. Each copy reuses the memory of the previous one,
    which becomes invalid; so a checkpoint costs a copy but no allocation."""

    def __init__(self) -> None:
        self._buffers: dict[tuple[Any, ...], np.ndarray[Any, Any]] = {}

    def take(self, value: Any, where: tuple[Any, ...] = ()) -> Any:
        """A copy of `value`, on the CPU."""
        if isinstance(value, dict):
            return {key: self.take(item, (*where, key)) for key, item in value.items()}
        if isinstance(value, (list, tuple)):
            return type(value)([self.take(item, (*where, i)) for i, item in enumerate(value)])
        if is_tensor(value):
            from ox.tensors.tensor import make_tensor

            return make_tensor(self._copy(value.array, where))
        return self._copy(value, where) if isinstance(value, np.ndarray) else value

    def _copy(self, array: Any, where: tuple[Any, ...]) -> np.ndarray[Any, Any]:
        buffer = self._buffers.get(where)
        if buffer is None or buffer.shape != array.shape or buffer.dtype != array.dtype:
            buffer = self._buffers[where] = np.empty(array.shape, array.dtype)
        if isinstance(array, np.ndarray):
            np.copyto(buffer, array)
        else:
            array.get(out=buffer)  # CuPy: directly into host memory
        return buffer


def size(value: Any) -> int:
    """Bytes of all tensors and arrays in a state."""
    if isinstance(value, dict):
        return sum(map(size, value.values()))
    if isinstance(value, (list, tuple)):
        return sum(map(size, value))
    array = value.array if is_tensor(value) else value
    return int(getattr(array, "nbytes", 0))
