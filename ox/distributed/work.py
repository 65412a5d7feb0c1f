"""An operation on its way: to wait for with patience that ends, and to be driven forward meanwhile.

MPI moves non-blocking operations only inside its own calls, and its own waits burn a core. So waiting here is asking,
with pauses that grow with the time already waited, and an operation that nobody waits for is asked by a thread.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from datetime import timedelta
from time import perf_counter, sleep
from typing import TYPE_CHECKING, Any

from ox.errors import DistributedError

if TYPE_CHECKING:
    from ox.distributed.process_group import ProcessGroup

SPINS = 100  # tries that only offer the core to others
OFFER = getattr(os, "sched_yield", lambda: sleep(0))
PAUSES = (2e-5, 1e-3)  # seconds: the shortest and longest pause; between them a tenth of what was waited
SLOW = 1.0  # seconds after which the other ranks are told
POLL = 3e-4  # seconds between the rounds of the thread


class Work:
    """What `async_op=True`, `isend` and `irecv` return. `torch.distributed.Work`."""

    def __init__(
        self, group: ProcessGroup, text: str, request: Any, place: tuple[str, int] | None, number: int = 0,
        check: Any = None, finish: Callable[[], None] | None = None, peer: int | None = None,
    ) -> None:  # fmt: skip
        self._group, self._text, self._request, self._place, self._number = group, text, request, place, number
        self._check, self._finish, self._peer = check, finish, peer
        self._lock = threading.Lock()
        self._began = perf_counter()
        self._told = False
        self._done = False
        self._error: Exception | None = None

    def wait(self, timeout: timedelta | float | None = None) -> bool:
        """Return True when the result is there.

        Args:
            timeout: how long at most, a timedelta or seconds; the group's by default.

        Raises:
            DistributedError: a rank did not come in time, has ended, or came with another operation.
        """
        patience = seconds(timeout) if timeout is not None else self._group.timeout
        began, tries = perf_counter(), 0
        while not self.advance():
            tries += 1
            if tries < SPINS:
                OFFER()
                continue
            waited = perf_counter() - began
            if self.look_around(waited, patience):
                break
            sleep(min(max(waited / 10, PAUSES[0]), PAUSES[1]))
        if self._error is not None:
            raise self._error
        if self._told and self._group.monitor is not None:
            self._told = False
            self._group.monitor.tell("goes on", self._number, "")
        return True

    def is_completed(self) -> bool:
        """Whether wait() would return at once."""
        return self.advance()

    def is_success(self) -> bool:
        """Whether the result is there."""
        return self.advance() and self._error is None

    def exception(self) -> Exception | None:
        """What wait() would raise, as far as is known."""
        return self._error

    def source_rank(self) -> int:
        """The rank whose message an `irecv` took."""
        self.wait()
        return int(self._group.ranks[self._request.source])

    def advance(self) -> bool:
        """Drive the operation forward; True when it is over, one way or the other."""
        if self._done:
            return True
        with self._lock:
            if self._done:
                return True
            try:
                if self._check is not None:
                    if not self._check.test():
                        return False
                    self._check.compare()
                    self._check = None
                if not self._request.test():
                    return False
                if self._finish is not None:
                    self._finish()
            except Exception as error:
                self._error = (
                    error if isinstance(error, DistributedError) else self._group.broken(self._text, self._place, error)
                )
            self._done = True
            self._finish = None
        return True

    def look_around(self, waited: float, patience: float) -> bool:
        """After some time without a result: tell the others, hear them, give up. True when there is an error now."""
        monitor = self._group.monitor
        if monitor is None:
            if waited > patience:
                self._give_up(self._group.late(self._text, self._place, self._number, self._peer, waited))
            return self._done
        monitor.listen()
        if not self._told and waited > min(SLOW, patience / 3):
            self._told = True
            monitor.tell("waits", self._number, self._text)
        gone = monitor.gone(self._number, self._peer)
        if self._group.is_broken:  # an operation before this one failed, and said so
            if not self.advance():
                self._give_up(self._group.closed(self._text, self._place))
        elif gone or monitor.failed() or waited > patience:
            monitor.tell("failed", self._number, self._text)
            monitor.last_words()
            if not self.advance():
                self._give_up(self._group.late(self._text, self._place, self._number, self._peer, waited))
        return self._done

    def _give_up(self, error: DistributedError) -> None:
        with self._lock:
            if not self._done:
                self._done, self._error = True, error


class Helper:
    """The thread that drives forward what nobody waits for. It ends when there is nothing left, and starts anew."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._works: list[Work] = []
        self._thread: threading.Thread | None = None

    def take(self, work: Work) -> None:
        """Keep `work` and its memory until it is over."""
        with self._lock:
            for other in self._works:
                other.advance()
            self._works.append(work)
            if self._thread is None and work._group.threads:
                self._thread = threading.Thread(target=self._run, name="ox-collectives", daemon=True)
                self._thread.start()

    def _run(self) -> None:
        while True:
            over = {id(work) for work in list(self._works) if work.advance()}
            with self._lock:
                self._works = [work for work in self._works if id(work) not in over]
                if not self._works:
                    self._thread = None
                    return
                first = self._works[0]
            waited = perf_counter() - first._began
            if waited > SLOW:
                first.look_around(waited, float("inf"))
            sleep(POLL)

    def rest(self) -> list[Work]:
        """What is still on its way."""
        with self._lock:
            return [work for work in self._works if not work.advance()]


HELPER = Helper()


def seconds(timeout: timedelta | float) -> float:
    """A time limit in seconds."""
    return timeout.total_seconds() if isinstance(timeout, timedelta) else float(timeout)
