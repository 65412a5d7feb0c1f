"""A CUDA graph is captured while nothing else of the server uses a GPU."""

from __future__ import annotations

import sys
import weakref
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from threading import Condition, local
from typing import Any

from ox.errors import LoadError

MOST_S = 10.0  # that a capture waits for runs, which wait for it meanwhile


def _references(box: list[Any]) -> int:
    """How many there are to what is in a list; 0 for an empty one."""
    return sys.getrefcount(box[0]) if box else 0


_numbers = count()
ALONE = _references([object()])


class _End:
    """Tells the gate when an owner goes. It does not refer to the resource: the garbage collector would clear weak
    references to it, and what it uses with them, before this is called."""

    def __init__(self, gate: CaptureGate, number: int) -> None:
        self._gate, self._number = gate, number

    def __del__(self) -> None:
        if not sys.is_finalizing():
            self._gate.end(self._number)


class CaptureGate:
    """A lock of many users or one capture. ONNX Runtime captures with cudaStreamCaptureModeGlobal: an allocation of
    another thread ends the capture, and fails itself."""

    def __init__(self) -> None:
        self._changed = Condition()
        self._users = 0
        self._loads = 0
        self._capturing = False
        self._inside = local()  # the blocks of `using` that a thread is in
        self._owned: dict[int, list[Any]] = {}  # what frees memory of a GPU when it ends, each in a list
        self._ending: deque[list[Any]] = deque()  # those whose owners have gone

    def end_with(self, owner: Any, resource: Any, *used: Any) -> None:
        """Has a resource, whose end frees memory of a GPU, end after its owner while nothing is captured.

        Python's garbage collector may end the owner at any time, in any thread. So nothing is waited for: the resource
        ends at once, or with a later block of this gate, once nothing else refers to it.

        Args:
            owner: takes an attribute `ox_end`.
            used: what the resource uses until then.
        """
        weakref.finalize(resource, id, used).atexit = False  # `id` does nothing
        number = next(_numbers)
        self._owned[number] = [resource]
        owner.ox_end = _End(self, number)  # after the owner's own references, and so the last to go

    def end(self, number: int) -> None:
        """An owner has gone."""
        self._ending.append(self._owned.pop(number))
        self.end_pending()

    def end_pending(self) -> None:
        """Ends what can end now; called without the lock, or by the garbage collector while this thread has it."""
        if not self._ending or not self._changed.acquire(blocking=False):
            return
        try:
            if self._capturing:
                return
            self._users += 1
        finally:
            self._changed.release()
        try:
            for _ in range(len(self._ending)):
                try:
                    resource = self._ending.popleft()
                except IndexError:  # another thread, which ends them too, has taken the last one
                    break
                if _references(resource) > ALONE:
                    self._ending.append(resource)
                else:
                    resource.clear()
        finally:
            with self._changed:
                self._users -= 1
                self._changed.notify_all()

    @contextmanager
    def using(self) -> Iterator[None]:
        """A block that uses a GPU; it waits for the end of a capture. One inside of another in the same thread does
        not: the capture waits for the outer one."""
        depth = getattr(self._inside, "depth", 0)
        with self._changed:
            if not depth:
                self._changed.wait_for(lambda: not self._capturing)
            self._users += 1
        self._inside.depth = depth + 1
        try:
            yield
        finally:
            self._inside.depth = depth
            with self._changed:
                self._users -= 1
                self._changed.notify_all()
            self.end_pending()

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
            self.end_pending()

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
            self.end_pending()

    def _open(self) -> None:
        self._capturing = False
        self._changed.notify_all()


GATE = CaptureGate()  # of the process
