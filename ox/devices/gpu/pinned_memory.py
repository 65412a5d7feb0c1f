"""Pinned memory of the host, from which a GPU copies while the host goes on, and those copies."""

from __future__ import annotations

import sys
from functools import cache
from threading import RLock
from typing import Any

import numpy as np

from ox.devices import cuda_state
from ox.devices.gpu import cupy_device as cuda
from ox.devices.gpu import device_checks
from ox.devices.gpu.cupy_device import cupy, ordinal


def pin(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """A copy of the array, row by row, in pinned memory of CuPy's pool; the array itself if it is there already.

    Raises:
        DeviceError: there is no GPU.
    """
    if is_pinned(array) or not array.size:
        return array
    memory = cupy().cuda.alloc_pinned_memory(array.nbytes)
    made: np.ndarray[Any, Any] = np.frombuffer(memory, np.uint8, array.nbytes).view(array.dtype).reshape(array.shape)
    made[...] = array
    return made


def is_pinned(array: Any) -> bool:
    """Whether it lies in memory that `pin` has made."""
    module = sys.modules.get("cupy")
    if module is None:
        return False
    while isinstance(array, np.ndarray):
        array = array.base
    return isinstance(array, memoryview) and isinstance(array.obj, module.cuda.PinnedMemoryPointer)


def to_device(array: Any, device: str, non_blocking: bool) -> Any:
    """The array on the GPU, for work of the current stream.

    The host waits for the end of a copy from pinned memory, but with `non_blocking`: then that memory may not be
    written before. Other memory is read before the call returns.
    """
    pinned = is_pinned(array)
    if pinned and non_blocking and array.flags.c_contiguous:
        return HostCopy(array, device).join()
    return cuda.to_device(array, device, blocking=pinned)


class HostCopy:
    """A copy of pinned memory to a GPU, on a stream of its own. What the current stream was given before goes first.

    Args:
        array: an array of `pin`, contiguous. It may not be written before the copy has ended.

    Attributes:
        array: that on the GPU; only for work after `join`.
    """

    def __init__(self, array: np.ndarray[Any, Any], device: str) -> None:
        api, number = cupy().cuda, ordinal(device)
        with api.Device(number):
            # memory of the current stream, whose earlier work may still use it
            self.array = cupy().empty(array.shape, array.dtype)
            stream = _copy_stream(number)
            stream.wait_event(_mark(api.get_current_stream()))
            self.array.data.copy_from_host_async(array.ctypes.data, array.nbytes, stream)
            self._event = _mark(stream)
        cuda_state.in_use = True
        keep_until(self._event, array, self.array)

    def join(self) -> Any:
        """The array on the GPU, for work of its device's current stream. The host does not wait."""
        with self.array.device:
            cupy().cuda.get_current_stream().wait_event(self._event)
        return self.array


class HostResult:
    """A small array of a GPU on its way to pinned memory of the host, after the work of the current stream."""

    def __init__(self, array: Any) -> None:
        self._made = pin(np.empty(array.shape, array.dtype))
        with array.device:
            self._source = cupy().ascontiguousarray(array).copy()  # which later work does not write
            stream = cupy().cuda.get_current_stream()
            self._source.data.copy_to_host_async(self._made.ctypes.data, self._made.nbytes, stream)
            self._event = _mark(stream)
        keep_until(self._event, self._made, self._source)

    def wait(self) -> np.ndarray[Any, Any]:
        """The array on the host, which waits if the copy has not ended."""
        if not self._event.done:
            self._event.synchronize()
        device_checks.raise_if_wrong()
        return self._made


# No memory may go back to its pool before the work on it has ended, even if nobody else has it any more
_under_way: list[tuple[Any, ...]] = []
_keeping = RLock()  # two threads would forget what the other adds; the garbage collector may come in here


def keep_until(event: Any, *memory: Any) -> None:
    """Keep memory until an event has passed; release that of events which have."""
    with _keeping:
        _under_way[:] = [kept for kept in _under_way if not kept[0].done]
        _under_way.append((event, *memory))


def _mark(stream: Any) -> Any:
    return stream.record(cupy().cuda.Event(disable_timing=True))


@cache
def _copy_stream(number: int) -> Any:
    return cupy().cuda.Stream(non_blocking=True)
