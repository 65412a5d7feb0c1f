"""A CUDA graph is captured while nothing else of the server uses a GPU."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Condition

from ox.errors import LoadError

MOST_S = 10.0  # that a capture waits for runs, which wait for it meanwhile


class CaptureGate:
    """A lock of many users or one capture. ONNX Runtime captures with cudaStreamCaptureModeGlobal: an allocation of
    another thread ends the capture, and fails itself."""

    def __init__(self) -> None:
        self._changed = Condition()
        self._users = 0
        self._loads = 0
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
    def loading(self) -> Iterator[None]:
        """The same for what takes long: a capture lets others go on while it waits for this."""
        with self._changed:
            self._changed.wait_for(lambda: not self._capturing)
            self._loads += 1
        try:
            yield
        finally:
            with self._changed:
                self._loads -= 1
                self._changed.notify_all()

    @contextmanager
    def capturing(self) -> Iterator[None]:
        """A block that captures; it waits for those that use a GPU, and they for it.

        Raises:
            LoadError: a run does not end within MOST_S.
        """
        with self._changed:
            self._changed.wait_for(lambda: not (self._capturing or self._loads))
            self._capturing = True
            if not self._changed.wait_for(lambda: not self._users, MOST_S):
                self._open()
                what = "no CUDA graph can be captured: a run on a GPU does not end"
                raise LoadError(what, expected=f"its end within {MOST_S:g} seconds", hint="load the model again")
        try:
            yield
        finally:
            with self._changed:
                self._open()

    def _open(self) -> None:
        self._capturing = False
        self._changed.notify_all()


GATE = CaptureGate()  # of the process
