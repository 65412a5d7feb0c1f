"""CUDA shared memory: regions on a GPU that clients allocate, fill with inputs and read outputs from.

Tensors are copied through the host, so a model on any device can read and write them. A client must have finished its
own writes (`cudaStreamSynchronize`) before it sends a request.
"""

from __future__ import annotations

import base64
import binascii
from typing import Any

from ox.devices.gpu.cupy_device import cupy
from ox.devices.gpu.ipc_memory import HANDLE_BYTES, IpcMemory
from ox.errors import DeviceError, ServeError
from ox.graph.contract import Array
from ox.serve.protocol.v2.document import quote
from ox.serve.runtime.capture_gate import GATE

MAX_DEVICE = 1 << 16


class CudaRegion:
    """The first `byte_size` bytes of an allocation on a GPU. It stays open until the last request that uses it is
    answered.

    Args:
        name: what requests call it.
        raw_handle: the cudaIpcMemHandle_t, in base64.
        device_id: the number of the GPU.
        byte_size: how much of the allocation may be used.

    Raises:
        ServeError: this server cannot use GPUs (501, with what is missing); no such device, no such handle, or an
            allocation that is smaller (400).
    """

    words = "CUDA shared memory"

    def __init__(self, name: str, raw_handle: Any, device_id: Any, byte_size: Any) -> None:
        try:
            cupy()
        except DeviceError as error:
            got = error.what + (f": {error.got}" if error.got else "")
            what = "this server has no CUDA shared memory"
            raise ServeError(what, status=501, got=got, hint=f"{error.hint}; or system shared memory") from None
        if type(device_id) is not int or not 0 <= device_id < MAX_DEVICE:
            raise ServeError("'device_id' is wrong", expected="the number of a GPU", got=quote(device_id))
        if type(byte_size) is not int or byte_size < 1:
            raise ServeError("'byte_size' is wrong", expected="at least 1", got=quote(byte_size))
        try:
            with GATE.using():
                self._memory = IpcMemory(_decoded(raw_handle), device_id)
        except DeviceError as error:
            what = f"CUDA shared memory region {quote(name)} cannot be opened: {error.what}"
            raise ServeError(what, expected=error.expected, got=error.got, hint=error.hint) from None
        if byte_size > self._memory.size:
            raise ServeError(
                f"the allocation of CUDA shared memory region {quote(name)} is too small",
                expected=f"at most {self._memory.size} bytes",
                got=f"byte_size {byte_size}",
            )
        self.name, self.device_id, self.byte_size = name, device_id, byte_size

    def status(self) -> dict[str, Any]:
        """The region in the protocol's format."""
        return {"name": self.name, "device_id": self.device_id, "byte_size": self.byte_size}

    def read(self, offset: int, data: Array) -> None:
        """Reads bytes from `offset` on into `data`.

        Raises:
            ServeError: the device failed (500).
        """
        try:
            with GATE.using():
                self._memory.read(offset, data)
        except DeviceError as error:
            raise self._failed(error) from error

    def write(self, offset: int, data: bytes | memoryview) -> None:
        """Writes bytes from `offset` on.

        Raises:
            ServeError: the device failed (500).
        """
        try:
            with GATE.using():
                self._memory.write(offset, data)
        except DeviceError as error:
            raise self._failed(error) from error

    def _failed(self, error: DeviceError) -> ServeError:
        return ServeError(f"CUDA shared memory region {quote(self.name)}: {error.what}", status=500, got=error.got)


def _decoded(raw_handle: Any) -> bytes:
    try:
        handle = base64.b64decode(raw_handle, validate=True) if type(raw_handle) is str else b""
    except (binascii.Error, ValueError):
        handle = b""
    if len(handle) != HANDLE_BYTES:
        expected = f"the {HANDLE_BYTES} bytes of a cudaIpcMemHandle_t, in base64"
        raise ServeError("'raw_handle' is wrong", expected=expected, got=quote(raw_handle))
    return handle
