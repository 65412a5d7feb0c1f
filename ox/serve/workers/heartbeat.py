"""Tells whether a worker that does not respond is stopped, hangs, or is busy."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

EVERY = 0.5  # seconds between two looks
STOPPED = 2  # looks in a row at a process that a signal has stopped: one may fall between Ctrl-Z and its end
STILL = 3.0  # seconds in which a process that has to answer neither does nor uses the processor
HANGS = 30.0  # seconds without an answer of a process that is busy, or waits for a disk

State = tuple[str, int]  # the letter that the system gives a process, and the processor time that it has used


def state_of(pid: int) -> State | None:
    """State and CPU time of a process, from /proc; None without /proc."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return fields[0], int(fields[11]) + int(fields[12])


class Heartbeat:
    """Counts checks, not seconds, since the supervisor may be stopped together with the worker.

    Args:
        state: the worker's process now.
    """

    def __init__(self, state: Callable[[], State | None]) -> None:
        self._state = state
        self.answered()

    def answered(self) -> None:
        """The worker has responded since the last check."""
        self._missed = self._stopped = self._still = 0
        self._used = -1

    def missed(self) -> str | None:
        """The worker has not responded since the last check. Returns the reason to kill it, or None."""
        state, used = self._state() or ("", 0)
        self._missed += 1
        self._stopped = self._stopped + 1 if state == "T" else 0
        self._still = self._still + 1 if state == "S" and used == self._used else 0
        self._used = used
        if self._stopped >= STOPPED:
            return "has been stopped (SIGSTOP)"
        if self._still * EVERY >= STILL:
            return f"has used no CPU time and not responded for {STILL:g} s"
        if self._missed * EVERY >= HANGS:
            return f"has not responded for {HANGS:g} s"
        return None
