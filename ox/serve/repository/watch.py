"""Looking at the disk from time to time."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable

from ox.errors import LoadError, OxError
from ox.serve.repository.layout import Scan


class Watch:
    """Calls `seen` on the event loop with what `scan` finds, or with the reason why it finds nothing, every `every_s`.

    A thread, not a task: a file system that hangs must not hold up the loop. Stamps, not inotify: that knows neither
    network file systems nor what lies behind links.
    """

    def __init__(self, scan: Callable[[], Scan], seen: Callable[[Scan | OxError], None], every_s: float) -> None:
        self._scan, self._seen, self._every_s = scan, seen, every_s
        self._stop = threading.Event()

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        threading.Thread(target=self._work, name="ox-watch", daemon=True).start()

    def stop(self) -> None:
        self._stop.set()

    def _work(self) -> None:
        while not self._stop.wait(self._every_s):
            found: Scan | OxError
            try:
                found = self._scan()
            except OxError as error:
                found = error
            except Exception as error:  # without this thread nobody would follow what changes any more
                got = f"{type(error).__name__}: {error}"
                found = LoadError("the models' files cannot be looked at", got=got)
            with contextlib.suppress(RuntimeError):  # the loop has been closed
                self._loop.call_soon_threadsafe(self._seen, found)
