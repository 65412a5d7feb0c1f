"""A CUDA graph is captured while nothing else of the server uses a GPU."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Condition


class CaptureGate:
    """ONNX Runtime captures with cudaStreamCaptureModeGlobal: an allocation or wait of another thread ends the capture,
    and fails itself."""

    def __init__(self) -> None:
        self._changed = Condition()
        self._users = 0
        self._capturing = False

    @contextmanager
    def using(self) -> Iterator[None]:
        """A block that uses a GPU; it waits for the end of a capture."""
        with self._changed:
            self._changed.wait_for(lambda: not self._capturing)
            self._users += 1
        try:
            yield
        finally:
            with self._changed:
                self._users -= 1
                self._changed.notify_all()

    @contextmanager
    def capturing(self) -> Iterator[None]:
        """A block that captures; it waits for those that use a GPU, and they for it."""
        with self._changed:
            self._changed.wait_for(lambda: not self._capturing)
            self._capturing = True
            self._changed.wait_for(lambda: not self._users)
        try:
            yield
        finally:
            with self._changed:
                self._capturing = False
                self._changed.notify_all()


GATE = CaptureGate()  # of the process
