"""The module `cupy.cuda` of the stand-in: one device, whose work is done at once."""

from __future__ import annotations

import ctypes
from types import ModuleType
from typing import Any

FREE, TOTAL = 1 << 36, 1 << 37


class Device:
    """`cupy.cuda.Device`."""

    def __init__(self, device: Any = None) -> None:
        self.id = 0 if device is None else int(device)
        self.compute_capability = "90"

    def __int__(self) -> int:
        return self.id

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Device) and self.id == other.id

    def __hash__(self) -> int:
        return self.id

    def __enter__(self) -> Device:
        return self

    def __exit__(self, *error: object) -> None:
        pass

    def use(self) -> None:
        pass

    def synchronize(self) -> None:
        pass


class Event:
    """`cupy.cuda.Event`."""

    def __init__(self, block: bool = False, disable_timing: bool = False, interprocess: bool = False) -> None:
        self.done = True

    def record(self, stream: Any = None) -> None:
        pass

    def synchronize(self) -> None:
        pass


class Stream:
    """`cupy.cuda.Stream`."""

    null: Stream

    def __init__(
        self, null: bool = False, non_blocking: bool = False, ptds: bool = False, priority: Any = None
    ) -> None:
        self.ptr, self.done = 0, True

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *error: object) -> None:
        pass

    def synchronize(self) -> None:
        pass

    def record(self, event: Event | None = None) -> Event:
        return event or Event()

    def wait_event(self, event: Event) -> None:
        pass


class MemoryPointer:
    """`cupy.cuda.MemoryPointer`: an address that keeps its memory."""

    def __init__(self, owner: Any) -> None:
        self.mem, self.ptr, self.device = owner, owner.__array_interface__["data"][0], Device()

    def copy_from_host_async(self, mem: int, size: int, stream: Any = None) -> None:
        ctypes.memmove(self.ptr, mem, size)


class PinnedMemoryPointer(bytearray):
    """`cupy.cuda.PinnedMemoryPointer`: memory of the host."""


class MemoryPool:
    """`cupy.cuda.MemoryPool`, with nothing in it."""

    def used_bytes(self) -> int:
        return 0

    total_bytes = free_bytes = n_free_blocks = get_limit = used_bytes

    def malloc(self, size: int) -> None:
        pass

    def free_all_blocks(self, stream: Any = None) -> None:
        pass


def namespace() -> ModuleType:
    """The module."""
    cuda, runtime = ModuleType("cupy.cuda"), ModuleType("cupy.cuda.runtime")
    runtime.getDeviceCount = lambda: 1
    runtime.getDevice = lambda: 0
    runtime.runtimeGetVersion = runtime.driverGetVersion = lambda: 13000
    runtime.memGetInfo = lambda: (FREE, TOTAL)
    runtime.getDeviceProperties = lambda device: {
        "name": b"strict_numpy",
        "major": 9,
        "minor": 0,
        "totalGlobalMem": TOTAL,
        "multiProcessorCount": 132,
        "warpSize": 32,
    }
    Stream.null = Stream()
    cuda.get_current_stream = lambda: Stream.null
    cuda.runtime = runtime
    cuda.get_allocator = lambda: None
    cuda.alloc_pinned_memory = PinnedMemoryPointer
    for each in (Device, Event, Stream, MemoryPointer, MemoryPool, PinnedMemoryPointer):
        setattr(cuda, each.__name__, each)
    return cuda
