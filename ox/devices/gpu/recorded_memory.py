"""Memory of a GPU that more streams use than the one that allocated it."""

from __future__ import annotations

import sys
from threading import RLock
from typing import Any

from ox.devices.gpu.cupy_device import cupy
from ox.devices.gpu.pinned_memory import keep_until
from ox.errors import DeviceError


class _Recorded:
    """Memory of CuPy's pool, and the streams that use it."""

    def __init__(self, memory: Any) -> None:
        self.memory = memory
        self.streams: dict[tuple[int, int], Any] = {}  # by device and address: default streams have the same

    def references(self) -> int:
        """How many there are to the memory, this one included."""
        return sys.getrefcount(self.memory)


_ALONE = _Recorded(object()).references()
_recorded: dict[int, _Recorded] = {}  # by the memory's id
_lock = RLock()  # the garbage collector may come in here


def record_stream(array: Any, stream: Any) -> None:
    """Let the memory of an array wait for the work that a stream has when nothing uses the array any more.

    CuPy's pool gives memory back to the stream that allocated it at once, whatever others still do with it. So the
    memory is kept here, until `release_unused` sees that it is kept here alone.

    Args:
        array: a CuPy array.
        stream: CuPy's.

    Raises:
        DeviceError: the stream has been destroyed.
    """
    if _is_destroyed(stream):
        hint = "a stream of ox.cuda.Stream, which lives as long as the object"
        raise DeviceError("this stream has been destroyed", got=repr(stream), hint=hint)
    release_unused()
    memory = array.data.mem
    with _lock:
        recorded = _recorded.setdefault(id(memory), _Recorded(memory))
        recorded.streams[stream.device_id, stream.ptr] = stream


def _is_destroyed(stream: Any) -> bool:
    try:
        stream.is_capturing()
    except cupy().cuda.runtime.CUDARuntimeError as error:
        return "cudaErrorInvalidResourceHandle" in str(error)
    return False


def release_unused() -> None:
    """Give back the memory of arrays that are gone, once the streams have done what they have to do now."""
    with _lock:
        for key, recorded in list(_recorded.items()):
            if recorded.references() > _ALONE:
                continue
            streams = [stream for stream in recorded.streams.values() if not _is_destroyed(stream)]
            if any(stream.is_capturing() for stream in streams):
                continue
            if len(streams) < len(recorded.streams):  # its owner destroyed one, whose work may go on
                recorded.memory.device.synchronize()
            for stream in streams:
                number = stream.device_id  # -1: a default stream, which each device has
                with cupy().cuda.Device(number) if number >= 0 else recorded.memory.device:
                    keep_until(stream.record(cupy().cuda.Event(disable_timing=True)), recorded.memory)
            del _recorded[key]
