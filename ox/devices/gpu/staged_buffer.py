"""An array on a GPU and its copy in pinned memory of the host, from which the GPU copies by itself."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from typing import Any

import numpy as np

from ox.devices.gpu.cupy_device import cupy


def pinned_array(shape: Sequence[int], dtype: Any, number: int = 0) -> np.ndarray[Any, Any]:
    """An array of NumPy in pinned memory of CuPy's pool, with nothing written in it.

    Args:
        number: of the GPU that copies.
    """
    xp, size = cupy(), int(np.prod(shape))
    with xp.cuda.Device(number):
        memory = xp.cuda.alloc_pinned_memory(size * np.dtype(dtype).itemsize)
    return np.frombuffer(memory, dtype, size).reshape(shape)


class StagedBuffer:
    """Memory at two fixed addresses: `host`, an array of NumPy, and `device`, one of CuPy.

    Copies are ordered on a stream of the same GPU and return at once; who reads `host` waits for the stream first.

    Args:
        shape, dtype: of both arrays.
        number: of the GPU.

    Raises:
        DeviceError: no CuPy or no GPU.
    """

    def __init__(self, shape: Sequence[int], dtype: Any, number: int = 0) -> None:
        xp = cupy()
        self._place = xp.cuda.Device(number)
        with self._place:
            self.device: Any = xp.empty(tuple(shape), dtype)
        self.host = pinned_array(shape, dtype, number)

    def part(self, shape: Sequence[int]) -> StagedBuffer:
        """The first elements as arrays of another shape, at the same addresses."""
        part, size = copy(self), int(np.prod(shape))
        part.host = self.host.reshape(-1)[:size].reshape(shape)
        part.device = self.device.reshape(-1)[:size].reshape(tuple(shape))
        return part

    @property
    def address(self) -> int:
        """Where the array on the GPU is."""
        return int(self.device.data.ptr)

    def to_device(self, stream: Any) -> None:
        with self._place:
            self.device.set(self.host, stream=stream)

    def to_host(self, stream: Any) -> None:
        with self._place:
            self.device.get(stream=stream, out=self.host, blocking=False)
