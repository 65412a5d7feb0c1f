"""An array on a GPU and its copy in pinned memory of the host, from which the GPU copies by itself."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ox.devices.cuda import cupy


class StagedBuffer:
    """Memory at two fixed addresses: `host`, an array of NumPy, and `device`, one of CuPy.

    Copies are ordered on a stream and return at once; who reads `host` waits for the stream first.

    Raises:
        DeviceError: no CuPy or no GPU.
    """

    def __init__(self, shape: Sequence[int], dtype: Any) -> None:
        xp, size = cupy(), int(np.prod(shape))
        self._memory = xp.cuda.alloc_pinned_memory(size * np.dtype(dtype).itemsize)
        self.host: np.ndarray[Any, Any] = np.frombuffer(self._memory, dtype, size).reshape(shape)
        self.device: Any = xp.empty(tuple(shape), dtype)

    @property
    def address(self) -> int:
        """Where the array on the GPU is."""
        return int(self.device.data.ptr)

    def to_device(self, stream: Any) -> None:
        self.device.set(self.host, stream=stream)

    def to_host(self, stream: Any) -> None:
        self.device.get(stream=stream, out=self.host, blocking=False)
