"""Non-blocking operations: waiting with a timeout, and progress without a wait.

MPI makes progress only inside its own calls, and its blocking waits use a whole core. So `Work.wait` polls, with pauses
that grow with the time already waited. A thread polls operations for which no call waits.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from ox.clock import SYSTEM
from ox.distributed import heartbeat
from ox.errors import ArgumentError, DistributedError
from ox.futures import Future

if TYPE_CHECKING:
    from ox.distributed.process_group import ProcessGroup

SPINS = 100  # polls with sched_yield between them, before the pauses begin
sched_yield = getattr(os, "sched_yield", lambda: SYSTEM.sleep(0))
PAUSES = (2e-5, 1e-3)  # seconds: the shortest and longest pause; between these a tenth of the time waited
SLOW = 1.0  # seconds of waiting after which the other ranks get a note
POLL = 3e-4  # seconds between the polls of the thread


class Work:
    """What `async_op=True`, `isend` and `irecv` return. `torch.distributed.Work`."""

    _poll = POLL
    _patience = float("inf")  # of the thread: a call that waits gives up itself

    def __init__(
        self, group: ProcessGroup, text: str, request: Any, place: tuple[str, int] | None, number: int = 0,
        check: Any = None, finish: Callable[[], None] | None = None, peer: int | None = None,
        outputs: Sequence[Any] = (),
    ) -> None:  # fmt: skip
        self._group, self._text, self._request, self._place, self._number = group, text, request, place, number
        self._check, self._finish, self._peer, self._outputs = check, finish, peer, list(outputs)
        self._lock = threading.Lock()
        self._began = group.clock.now()
        self._notified = False
        self._done = False
        self._error: Exception | None = None

    def wait(self, timeout: timedelta | float | None = None) -> bool:
        """Waits for the result; returns True.

        Args:
            timeout: a timedelta or seconds; default: the timeout of the group.

        Raises:
            DistributedError: a rank did not arrive in time, has ended, or called another operation.
        """
        limit = seconds(timeout) if timeout is not None else self._group.timeout
        clock = self._group.clock
        began, tries = clock.now(), 0
        try:
            while not self.advance():
                tries += 1
                if tries < SPINS:
                    sched_yield()
                    continue
                waited = clock.now() - began
                if self.check_ranks(waited, limit):
                    break
                if waited > SLOW:
                    heartbeat.begin_wait(id(self), began, self._text)
                clock.sleep(min(max(waited / 10, PAUSES[0]), PAUSES[1]))
        finally:
            heartbeat.end_wait(id(self))
        if self._error is not None:
            raise self._error
        if self._notified and self._group.monitor is not None:
            self._notified = False
            self._group.monitor.send("goes on", self._number, "")
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

    def result(self) -> list[Any]:
        """The tensors that the operation writes, once it is complete. `torch.distributed.Work.result`."""
        self.wait()
        return self._outputs

    def get_future(self) -> Future[list[Any]]:
        """A future of the tensors that the operation writes. `torch.distributed.Work.get_future`."""
        return _FutureOfWork(self)

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
                    error
                    if isinstance(error, DistributedError)
                    else self._group.backend_error(self._text, self._place, error)
                )
            self._done = True
            self._finish = None
        return True

    def check_ranks(self, waited: float, limit: float) -> bool:
        """Exchange status with the other ranks, and set an error after the timeout. True if there is an error now."""
        monitor = self._group.monitor
        if monitor is None:
            if waited > limit:
                self._give_up(self._group.timeout_error(self._text, self._place, self._number, self._peer, waited))
            return self._done
        monitor.receive()
        if not self._notified and waited > min(SLOW, limit / 3):
            self._notified = True
            monitor.send("waits", self._number, self._text)
        gone = monitor.ended(self._number, self._peer)
        if self._group.is_broken:  # an earlier operation failed and reported it
            if not self.advance():
                self._give_up(self._group.closed_error(self._text, self._place))
        elif gone or monitor.failed() or waited > limit:
            monitor.send("failed", self._number, self._text)
            monitor.wait_for_notes()
            if not self.advance():
                self._give_up(self._group.timeout_error(self._text, self._place, self._number, self._peer, waited))
        return self._done

    def _give_up(self, error: DistributedError) -> None:
        with self._lock:
            if not self._done:
                self._done, self._error = True, error


class _FutureOfWork(Future[list[Any]]):
    """What `Work.get_future` returns."""

    def __init__(self, work: Work) -> None:
        super().__init__()
        self._work = work

    def done(self) -> bool:
        if not self._done and self._work.is_completed():
            self._take_over()
        return self._done

    def wait(self) -> list[Any]:
        if not self._done:
            try:
                self._work.wait()
            finally:
                self._take_over()
        return self.value()

    def _take_over(self) -> None:
        error = self._work.exception()
        self._set(None if error is not None else self._work._outputs, error)


class ProgressThread:
    """A thread that polls operations for which no call waits. It ends when none is left, and starts again with the
    next."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._works: list[Work] = []
        self._thread: threading.Thread | None = None
        self._polled = 0.0  # seconds of processor time of the earlier threads

    def add(self, work: Work) -> None:
        """Polls `work` until it is complete; holds a reference to its memory until then."""
        with self._lock:
            for other in self._works:
                other.advance()
            self._works.append(work)
            if self._thread is None and work._group.threads:
                self._thread = threading.Thread(target=self._run, name="ox-collectives", daemon=True)
                self._thread.start()

    def _run(self) -> None:
        while True:
            heartbeat.note_polling(self._polled + SYSTEM.thread_time())
            over = {id(work) for work in list(self._works) if work.advance()}
            with self._lock:
                self._works = [work for work in self._works if id(work) not in over]
                if not self._works:
                    self._thread, self._polled = None, self._polled + SYSTEM.thread_time()
                    return
                first = self._works[0]
            clock = first._group.clock
            waited = clock.now() - first._began
            if waited > SLOW:
                first.check_ranks(waited, first._patience)
            clock.sleep(first._poll)

    def unfinished(self) -> list[Work]:
        """The operations that are not complete."""
        with self._lock:
            return [work for work in self._works if not work.advance()]

    def wait_for(self, group: ProcessGroup) -> None:
        """Wait until no operation of a group is polled any more, or one has failed."""
        for work in self.unfinished():
            if work._group is group:
                with suppress(DistributedError):
                    work.wait(group.timeout)
        with self._lock:  # the thread is between two looks
            self._works = [work for work in self._works if work._group is not group]


PROGRESS_THREAD = ProgressThread()


def seconds(timeout: timedelta | float) -> float:
    """A time limit in seconds. Raises ArgumentError if it is negative or no number."""
    found = timeout.total_seconds() if isinstance(timeout, timedelta) else float(timeout)
    if not found >= 0:
        raise ArgumentError("a time limit is not negative", expected="seconds or a timedelta", got=f"{found:g} s")
    return found
