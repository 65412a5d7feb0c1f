"""One change of a model at a time: who comes later waits, but not for a slow load that is of no use any more."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from weakref import WeakValueDictionary

from ox.serve.repository.watchdog import SLOW_S

LOOK_S = 0.25


class Turns:
    """Locks by model.

    Args:
        cancel: ends the loads of a model that have been going on for so many seconds, and says why.
    """

    def __init__(self, cancel: Callable[[str, str, float], None]) -> None:
        self._cancel = cancel
        self.locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()  # those that somebody uses
        self._going: dict[str, object] = {}

    def taken(self, name: str) -> bool:
        """Whether somebody changes this model now."""
        lock = self.locks.get(name)
        return lock is not None and lock.locked()

    def going(self, name: str) -> object:
        """What whoever changes this model loads: what it is like on disk, or something that a call brought."""
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
