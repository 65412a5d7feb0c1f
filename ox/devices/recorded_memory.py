"""Memory of a GPU that more streams use than the one that allocated it."""

from __future__ import annotations

import sys
from typing import Any

from ox.devices.cuda import cupy
from ox.devices.pinned_memory import keep_until


class RecordedMemory:
    """Owns memory of CuPy's pool, and gives it back when the work has ended that some streams have when it is dropped.

    The pool gives memory back to the stream that allocated it at once, whatever others still do with it.
    """

    def __init__(self, memory: Any) -> None:
        self.memory = memory
        self.streams: dict[int, Any] = {}

    def __del__(self) -> None:
        if sys.is_finalizing():
            return
        for stream in self.streams.values():
            with self.memory.device:
                keep_until(stream.record(cupy().cuda.Event(disable_timing=True)), self.memory)


def record_stream(array: Any, stream: Any) -> Any:
    """The same elements at the same place, in memory that waits for the work of the stream before it is used again.

    Args:
        array: a CuPy array.
        stream: CuPy's.
    """
    memory, api = array.data.mem, cupy().cuda
    owner = getattr(memory, "_owner", None)
    if not isinstance(owner, RecordedMemory):
        owner = RecordedMemory(memory)
        memory = api.UnownedMemory(memory.ptr, memory.size, owner, memory.device_id)
        pointer = api.MemoryPointer(memory, array.data.ptr - memory.ptr)
        array = cupy().ndarray(array.shape, array.dtype, pointer, array.strides)
    owner.streams[stream.ptr] = stream
    return array
