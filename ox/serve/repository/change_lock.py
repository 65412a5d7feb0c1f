"""One change of a model at a time: later changes wait, but cancel a slow load that is obsolete."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from weakref import WeakValueDictionary

from ox.serve.repository.watchdog import SLOW_S

LOOK_S = 0.25


class ChangeLocks:
    """Locks by model.

    Args:
        cancel: cancels the loads of a model that take longer than a number of seconds, with a reason.
    """

    def __init__(self, cancel: Callable[[str, str, float], None]) -> None:
        self._cancel = cancel
        self.locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()  # those in use
        self._going: dict[str, object] = {}

    def locked(self, name: str) -> bool:
        """Whether this model is being changed."""
        lock = self.locks.get(name)
        return lock is not None and lock.locked()

    def going(self, name: str) -> object:
        """The files that the current change of this model loads: those on disk, or those of a load call."""
        return self._going.get(name)

    @asynccontextmanager
    async def take(self, name: str, what: object, why: str = "") -> AsyncIterator[None]:
        """Waits for a turn; `why` is what a slow load of something else than `what` hears, which then ends."""
        lock = self.locks.setdefault(name, asyncio.Lock())
        if lock.locked():
            await self._wait(lock, name, what, why)
        else:
            await lock.acquire()  # at once
        self._going[name] = what
        try:
            yield
        finally:
            self._going.pop(name, None)
            lock.release()

    async def _wait(self, lock: asyncio.Lock, name: str, what: object, why: str) -> None:
        waiting = asyncio.ensure_future(lock.acquire())
        try:
            while not (await asyncio.wait((waiting,), timeout=LOOK_S))[0]:
                if why and self.going(name) not in (None, what):
                    self._cancel(name, why, SLOW_S)
        except BaseException:
            if not waiting.cancel() and not waiting.cancelled():
                lock.release()
            raise
