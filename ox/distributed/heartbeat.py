"""The heartbeat of a rank: it tells the store that the rank runs, whether it computes, and in what it waits.

A rank that is stopped sends none. A rank in a deadlock sends heartbeats, but uses no processor time while others wait
for it. `ox.distributed.store` judges.
"""

from __future__ import annotations

import socket
import threading
from contextlib import suppress
from time import process_time, thread_time
from typing import Any

from ox.clock import Clock
from ox.distributed import frames

PARTS = 6  # heartbeats within the time limit
BUSY = 0.01  # the share of the time in which a process that makes progress uses a processor

_waits: dict[int, tuple[float, str]] = {}  # per waiting operation: since when, and its text
_polling = [0.0]  # seconds for which the thread that polls operations has used a processor


def begin_wait(number: int, since: float, text: str) -> None:
    """This rank waits in an operation; `number` distinguishes it, `since` is by its clock."""
    _waits[number] = (since, text)


def end_wait(number: int) -> None:
    """The operation has ended."""
    _waits.pop(number, None)


def note_polling(seconds: float) -> None:
    """The thread that polls operations has used a processor for so long in all, which is no progress."""
    _polling[0] = seconds


class Heartbeat:
    """Sends the heartbeats of this rank at a connection to the store, from a thread."""

    def __init__(self, connection: socket.socket, clock: Clock) -> None:
        self._connection, self._clock = connection, clock
        self._thread = threading.Thread(target=self._run, name="ox-heartbeat", daemon=True)
        self._pause = frames.heartbeat_timeout() / PARTS
        self._used, self._since = self._processor_time(), self._clock.now()
        if self._pause > 0:
            if hasattr(socket, "TCP_USER_TIMEOUT"):  # the store's machine does not answer
                limit = round(1000 * frames.heartbeat_timeout())
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, limit)
            self._thread.start()

    def _run(self) -> None:
        with suppress(OSError):  # the store has gone, which another thread reports
            while True:
                self._connection.sendall(frames.frame(self.state()))
                self._clock.sleep(self._pause)

    def state(self) -> dict[str, Any]:
        """What is sent: seconds without use of a processor, and the longest wait in an operation."""
        now, used = self._clock.now(), self._processor_time()
        if used - self._used > BUSY * self._pause:
            self._since = now
        self._used = used
        since, text = min(_waits.copy().values(), default=(now, ""))
        return {"idle": now - self._since, "waits": now - since, "operation": text}

    def _processor_time(self) -> float:
        """Seconds for which this process has used a processor, without the threads that send heartbeats and poll."""
        own = thread_time() if threading.current_thread() is self._thread else 0.0
        return process_time() - own - _polling[0]
