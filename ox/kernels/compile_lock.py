"""One process compiles a library while the others that want it, as the ranks of a run, wait for it."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

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
        file = os.open(path, os.O_CREAT | os.O_RDWR | os.O_NOFOLLOW, 0o600)
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
    import fcntl

    told = not sys.stderr.isatty()
    while time.monotonic() < end:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if not told:
                print("waiting for another process that compiles the kernels of ox", file=sys.stderr)
                told = True
            time.sleep(PAUSE)
        except OSError:  # a file system without locks
            return
