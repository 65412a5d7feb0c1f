"""Operations on a stream of a GPU. Their `wait` lets the current stream wait, as in PyTorch: the host goes on.

So no call is there to raise what goes wrong. A thread watches the operations: it compares the ranks, asks the library
for errors, and names a rank that has ended or does not come. Then the communicator is aborted, which frees the device,
and the error is raised by the next call that waits for the device, or by the next operation.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

from ox.devices.gpu import device_checks
from ox.distributed import heartbeat
from ox.distributed.work import Work
from ox.errors import DistributedError

POLL = 2e-3  # seconds between the looks of the thread


class StreamWork(Work):
    """What `async_op=True` returns for a backend whose operations are on a stream."""

    _poll = POLL

    def begin(self, begin: Callable[[], Any], finish: Callable[[], None] | None) -> None:
        """Give the operation to the stream, with `finish` behind it. It may wait until the ranks have connected, and
        the thread watches it already."""
        self._patience = self._group.timeout
        try:
            self._request = begin()
            if finish is not None:
                self._request.then(finish)
        except BaseException:
            self._done = True
            raise

    def wait(self, timeout: timedelta | float | None = None) -> bool:
        """Let the current stream wait for the result; returns True. The host does not wait, but with a timeout.

        Raises:
            DistributedError: the operation has failed, as far as is known; with a timeout, all that goes wrong.
        """
        try:
            if timeout is not None:
                super().wait(timeout)
            elif self._error is not None:
                raise self._error
        except DistributedError:
            device_checks.raise_told()  # the first failure, which may be that of another operation
            raise
        self._request.join()
        return True

    def advance(self) -> bool:
        """Look whether it is over. Called by the thread, and by what asks."""
        if self._done:
            return True
        with self._lock:
            if self._done:
                return True
            try:
                if self._check is not None and self._check.test():
                    self._check.compare()
                    self._check = None
                if self._request is None or not self._request.test() or self._check is not None:
                    return False
                self._done = True
            except Exception as error:
                found = error if isinstance(error, DistributedError) else None
                self._set_error(found or self._group.backend_error(self._text, self._place, error))
        heartbeat.end_wait(id(self))
        if self._notified and self._error is None and self._group.monitor is not None:
            self._group.monitor.send("goes on", self._number, "")
        return True

    def check_ranks(self, waited: float, limit: float) -> bool:
        """As for other operations; the rank waits, as the store is told."""
        heartbeat.begin_wait(id(self), self._began, self._text)
        return super().check_ranks(waited, limit)

    def _give_up(self, error: DistributedError) -> None:
        with self._lock:
            if not self._done:
                self._set_error(error)
        heartbeat.end_wait(id(self))

    def _set_error(self, error: DistributedError) -> None:
        self._done, self._error = True, error
        if not self._group.told:
            self._group.told = True
            device_checks.tell(error)
        self._group._fail(self._text, self._place)
