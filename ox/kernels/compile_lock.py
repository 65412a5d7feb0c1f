"""One process compiles a library while the others that want it, as the ranks of a run, wait for it."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from ox.file_lock import lock_file

BEGUN = ".lock-"  # begins the names of lock files
PAUSE = 0.05  # seconds between two looks


@contextmanager
def one_at_a_time(folder: Path, key: str, seconds: float) -> Iterator[None]:
    """Only one process is in this block for a folder and a key; the lock of one that dies is free.

    Who has waited for so many seconds goes on without the lock, and so do all where files cannot be locked.
    """
    path = folder / f"{BEGUN}{key}"
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        file = os.open(path, os.O_CREAT | os.O_RDWR | getattr(os, "O_NOFOLLOW", 0), 0o600)
    except OSError:
        yield  # who compiles says what is wrong with the folder
        return
    try:
        _wait(file, time.monotonic() + seconds)
        yield
    finally:
        with suppress(OSError):
            path.unlink()
        os.close(file)


def _wait(file: int, end: float) -> None:
    told = not sys.stderr.isatty()
    while time.monotonic() < end:
        if lock_file(file) is not False:  # None: a file system without locks
            return
        if not told:
            print("waiting for another process that compiles the kernels of ox", file=sys.stderr)
            told = True
        time.sleep(PAUSE)
