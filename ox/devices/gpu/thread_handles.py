"""Handles of NVIDIA's libraries, each of which one thread uses at a time."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class Handles(dict[int, T]):
    """Handles by device, made when they are asked for, on the current device.

    Args:
        left: takes them when this object goes, and is looked at before one is made.
    """

    def __init__(self, make: Callable[[], T], left: dict[int, list[T]] | None = None) -> None:
        super().__init__()
        self._make, self._left = make, left

    def __missing__(self, device: int) -> T:
        try:
            handle = (self._left or {})[device].pop()
        except (KeyError, IndexError):
            handle = self._make()
        self[device] = handle
        return handle

    def __del__(self) -> None:
        if self._left is not None:
            for device, handle in self.items():
                if handle is not None:  # the next thread tries again what failed
                    self._left.setdefault(device, []).append(handle)


class ThreadHandles(Generic[T]):
    """A handle for each thread and device. When a thread ends, others take its handles: to destroy one waits for the
    device."""

    def __init__(self, make: Callable[[], T]) -> None:
        self._make = make
        self._left: dict[int, list[T]] = {}
        self._threads = threading.local()

    def of_thread(self) -> Handles[T]:
        """Those of this thread."""
        try:
            return self._threads.handles  # type: ignore[no-any-return]
        except AttributeError:
            self._threads.handles = Handles(self._make, self._left)
            return self._threads.handles  # type: ignore[no-any-return]
