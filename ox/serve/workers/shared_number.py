"""A number that one process writes and others read at once, without a message."""

from __future__ import annotations

import mmap
import os
import tempfile

BYTES = 8


class SharedNumber:
    """A number in memory that processes share; 0 at first.

    Args:
        descriptor: of the memory, which another process has created; None creates it. This object owns it.
    """

    def __init__(self, descriptor: int | None = None) -> None:
        self.descriptor = _new() if descriptor is None else descriptor
        self._map = mmap.mmap(self.descriptor, BYTES)
        self._view = memoryview(self._map).cast("Q")  # written and read as one word

    @property
    def value(self) -> int:
        return self._view[0]

    @value.setter
    def value(self, value: int) -> None:
        self._view[0] = value

    def close(self) -> None:
        """Frees the memory for this process."""
        self._view.release()
        self._map.close()
        os.close(self.descriptor)


def _new() -> int:
    """The descriptor of new memory."""
    if hasattr(os, "memfd_create"):  # of Linux: needs no folder that can be written
        descriptor = os.memfd_create("ox-number")
    else:
        with tempfile.TemporaryFile() as file:
            descriptor = os.dup(file.fileno())
    os.truncate(descriptor, BYTES)
    return descriptor
