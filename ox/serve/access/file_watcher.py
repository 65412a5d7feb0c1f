"""A value read from files: reloaded when they change; the old value stays if the new files are invalid."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import Generic, TypeVar

from ox.errors import OxError

T = TypeVar("T")
log = logging.getLogger("ox.serve")

EVERY_S = 1.0


class FileWatcher(Generic[T]):
    """What `read` made of the files when they were last right.

    Nothing runs in the background: each access checks the files, at most once a second. It has no clock: every
    time is the caller's, in seconds, and may begin anywhere.

    Args:
        what: for the log.
        paths: whose changes count.
        read: reads them; raises OxError.
        now: the time of this first look, by the clock that `get` is given.
    """

    def __init__(self, what: str, paths: list[Path], read: Callable[[], T], now: float) -> None:
        self._what, self._paths, self._read = what, paths, read
        self._seen = self._stamps()
        self._value = read()
        self._next = now + EVERY_S

    def get(self, now: float) -> T:
        """The value at the time `now`."""
        if now >= self._next:
            self._next = now + EVERY_S
            seen = self._stamps()
            if seen != self._seen:
                self._seen = seen  # each problem is logged once
                self._reload()
        return self._value

    def _reload(self) -> None:
        try:
            self._value = self._read()
        except OxError as error:
            log.error("the %s changed and cannot be used; the old ones stay: %s", self._what, error.one_line())
        else:
            log.info("the %s changed and were read again", self._what)

    def _stamps(self) -> list[tuple[int, int, int] | None]:
        """Renaming a file over another keeps neither the inode nor, usually, the time."""
        stamps: list[tuple[int, int, int] | None] = []
        for path in self._paths:
            try:
                status = os.stat(path)
            except OSError:
                stamps.append(None)
            else:
                stamps.append((status.st_mtime_ns, status.st_size, status.st_ino))
        return stamps
