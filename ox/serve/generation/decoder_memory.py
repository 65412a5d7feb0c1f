"""Where the arrays of a decoder lie: in the memory of the host, or of a GPU with pinned copies of what is small."""

from __future__ import annotations

import weakref
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, Protocol

import numpy as np

from ox.devices import cuda
from ox.devices.machine import available_memory
from ox.devices.probe import CPU, CUDA
from ox.devices.runtime import onnxruntime
from ox.devices.staged_buffer import StagedBuffer
from ox.serve.config.cuda_options import CudaOptions
from ox.serve.runtime.capture_gate import GATE
from ox.serve.runtime.cuda_provider import provider_options

Array = np.ndarray[Any, Any]


class Buffer(Protocol):
    """An array of the host, and the address that a session gets for it."""

    host: Array

    @property
    def address(self) -> int: ...


class HostBuffer:
    """An array that is read and written where it lies."""

    def __init__(self, host: Array) -> None:
        self.host = host

    @property
    def address(self) -> int:
        return int(self.host.ctypes.data)


class HostMemory:
    """Memory of the host, for sessions on the CPU. `kind` and `number` are what a session calls the device."""

    kind, number = "cpu", 0
    is_lazy = True  # memory is taken where it is first written

    def providers(self) -> list[Any]:
        """What sessions are made with."""
        return [CPU]

    def keep_for(self, session: Any) -> None:
        """Keeps what a session uses as long as it is there."""

    def available(self) -> int:
        """Bytes that can still be allocated."""
        return available_memory()

    def using(self) -> AbstractContextManager[None]:
        """A block that works on arrays."""
        return nullcontext()

    def zeros(self, shape: Sequence[int], dtype: Any) -> Any:
        """An array for the cache."""
        return np.zeros(shape, dtype)

    def from_host(self, array: Any) -> Any:
        """An array that can be written into one of the cache."""
        return array

    def address(self, array: Any, row: int) -> int:
        """Where a row of an array of the cache begins."""
        return int(array.ctypes.data) + row * int(array.strides[0])

    def buffer(self, array: Array) -> Buffer:
        """A buffer that holds what `array` does."""
        return HostBuffer(array)

    def empty_buffer(self, shape: Sequence[int], dtype: Any) -> Buffer:
        """A buffer that is written before it is read."""
        return HostBuffer(np.empty(shape, dtype))

    def run(self, session: Any, binding: Any, sent: Sequence[Buffer], scores: Buffer, count: int) -> Array:
        """Runs a session. Returns the first rows of the scores, which the next run overwrites.

        Args:
            sent: buffers whose `host` was changed since they were last sent.
        """
        session.run_with_iobinding(binding)
        return scores.host[:count]


class GpuMemory(HostMemory):
    """Memory of a GPU. All copies and runs are ordered on one stream, for which a run waits once, at its end.

    Args:
        number: of the GPU.
        options: of the CUDA provider.

    Raises:
        DeviceError: no CuPy or no GPU.
    """

    kind = "cuda"
    is_lazy = False

    def __init__(self, number: int, options: CudaOptions) -> None:
        self.number, self._cuda = number, options
        with GATE.using():
            self.stream = cuda.stream(device=f"cuda:{number}")
        self._options = onnxruntime().RunOptions()
        self._options.add_run_config_entry("disable_synchronize_execution_providers", "1")

    def providers(self) -> list[Any]:
        return [(CUDA, provider_options(self._cuda, self.stream.ptr, self.number)), CPU]

    def keep_for(self, session: Any) -> None:
        # ONNX Runtime's own object uses the stream until it is destroyed, which bindings put off. `id` does nothing.
        weakref.finalize(session._sess, id, self.stream).atexit = False

    def available(self) -> int:
        with GATE.using():
            memory = cuda.memory(f"cuda:{self.number}")
        return min(memory.free + memory.held, memory.limit) - memory.used

    @contextmanager
    def using(self) -> Iterator[None]:
        with GATE.using(), cuda.cupy().cuda.Device(self.number), self.stream:
            yield

    def zeros(self, shape: Sequence[int], dtype: Any) -> Any:
        return cuda.cupy().zeros(tuple(shape), dtype)

    def from_host(self, array: Any) -> Any:
        return cuda.cupy().asarray(array)

    def address(self, array: Any, row: int) -> int:
        return int(array.data.ptr) + row * int(array.strides[0])

    def buffer(self, array: Array) -> StagedBuffer:
        buffer = self.empty_buffer(array.shape, array.dtype)
        buffer.host[...] = array
        with self.using():
            buffer.to_device(self.stream)
        return buffer

    def empty_buffer(self, shape: Sequence[int], dtype: Any) -> StagedBuffer:
        with self.using():
            return StagedBuffer(shape, dtype, self.number)

    def run(self, session: Any, binding: Any, sent: Sequence[Any], scores: Any, count: int) -> Array:
        with self.using():
            for buffer in sent:
                buffer.to_device(self.stream)
            try:
                session.run_with_iobinding(binding, self._options)
                scores.device[:count].get(stream=self.stream, out=scores.host[:count], blocking=False)
            finally:  # what was ordered reads and writes the buffers
                self.stream.synchronize()
        found: Array = scores.host[:count]
        return found


HOST = HostMemory()
