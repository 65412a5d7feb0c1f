"""Memory of a GPU that another process allocated, opened by the handle that it has sent (CUDA IPC)."""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import numpy as np

from ox.devices.gpu.cupy_device import cupy, ordinal
from ox.errors import DeviceError

HANDLE_BYTES = 64  # of a cudaIpcMemHandle_t


class IpcMemory:
    """An allocation of another process. It is closed when nothing refers to it any more, at the latest at exit.

    A handle is that of a whole allocation of `cudaMalloc`, of which `size` bytes are readable and writable here.

    Args:
        handle: 64 bytes, from `cudaIpcGetMemHandle`.
        device: the number of the GPU.

    Raises:
        DeviceError: no CuPy, no such GPU, or a handle that this process cannot open. Source: CUDA Runtime API, "Device
            Management", `cudaIpcOpenMemHandle`.
    """

    def __init__(self, handle: bytes, device: int) -> None:
        xp = cupy()
        self._device = xp.cuda.Device(ordinal(f"cuda:{device}"))
        with self._device, _named("the handle of CUDA memory cannot be opened"):
            address = xp.cuda.runtime.ipcOpenMemHandle(handle)
            self._stream = xp.cuda.Stream(non_blocking=True)
        weakref.finalize(self, _close, xp, self._device, address)
        with self._device:
            self.size = _allocation_size(address)
        memory = xp.cuda.UnownedMemory(address, self.size, None, self._device.id)
        self._bytes: Any = xp.ndarray((self.size,), np.uint8, xp.cuda.MemoryPointer(memory, 0))

    def read(self, offset: int, data: np.ndarray[Any, np.dtype[np.uint8]]) -> None:
        """Copies bytes from `offset` on into `data`, and waits for them.

        Raises:
            DeviceError: the copy failed.
        """
        with self._device, _named("CUDA memory of another process cannot be read"):
            self._bytes[offset : offset + len(data)].get(stream=self._stream, out=data)

    def write(self, offset: int, data: bytes | memoryview) -> None:
        """Copies bytes to `offset`, and waits until they are there.

        Raises:
            DeviceError: the copy failed.
        """
        with self._device, _named("CUDA memory of another process cannot be written"):
            self._bytes[offset : offset + len(data)].set(np.frombuffer(data, np.uint8), stream=self._stream)
            self._stream.synchronize()


@contextmanager
def _named(what: str) -> Iterator[None]:
    try:
        yield
    except cupy().cuda.runtime.CUDARuntimeError as error:
        hint = "a handle of cudaIpcGetMemHandle, from another process that has not ended"
        raise DeviceError(what, got=str(error), hint=hint) from error


def _close(xp: Any, device: Any, address: int) -> None:
    with suppress(xp.cuda.runtime.CUDARuntimeError), device:  # at exit, CUDA may be gone
        xp.cuda.runtime.ipcCloseMemHandle(address)


def _allocation_size(address: int) -> int:
    """The size of the allocation at an address, by the driver: a copy beyond it would be an error of the device."""
    base, size = ctypes.c_void_p(), ctypes.c_size_t()
    found = ctypes.CDLL("libcuda.so.1").cuMemGetAddressRange_v2(
        ctypes.byref(base), ctypes.byref(size), ctypes.c_void_p(address)
    )
    if found:
        raise DeviceError("the size of CUDA memory cannot be found", got=f"error {found} of cuMemGetAddressRange")
    return size.value
