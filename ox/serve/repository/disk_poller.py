"""Looking at the disk from time to time."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable

from ox.clock import Clock, Event
from ox.errors import LoadError, OxError
from ox.serve.repository.layout import Scan


class DiskPoller:
    """Calls `on_scan` on the event loop every `every_s`, with what `scan` finds or with the reason why not.

    A thread, not a task: a file system that hangs must not hold up the loop. Stamps, not inotify, which
    supports neither network file systems nor link targets.
    """

    def __init__(
        self, scan: Callable[[], Scan], on_scan: Callable[[Scan | OxError], None], every_s: float, clock: Clock
    ) -> None:
        self._scan, self._on_scan, self._every_s = scan, on_scan, every_s
        self._stop = Event(clock)

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        threading.Thread(target=self._work, name="ox-watch", daemon=True).start()

    def stop(self) -> None:
        self._stop.set()

    def _work(self) -> None:
        while not self._stop.wait(self._every_s):
            scan: Scan | OxError
            try:
                scan = self._scan()
            except OxError as error:
                scan = error
            except Exception as error:  # this thread must survive: it detects changes
                got = f"{type(error).__name__}: {error}"
                scan = LoadError("the models' files cannot be checked", got=got)
            with contextlib.suppress(RuntimeError):  # the loop has been closed
                self._loop.call_soon_threadsafe(self._on_scan, scan)
