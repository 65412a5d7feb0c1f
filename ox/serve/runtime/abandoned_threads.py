"""Abandoned threads that are inside a runtime: the process must not exit while they run.

A thread that comes back from C++ while the interpreter is being taken down ends the process with `terminate called
without an active exception`. A run can be stopped between operators, but not inside one.
"""

from __future__ import annotations

import atexit
import logging
import os
import sys
import threading
from collections.abc import Iterable
from contextlib import suppress
from time import perf_counter
from weakref import WeakSet

WAIT_S = 1.0

_abandoned: WeakSet[threading.Thread] = WeakSet()


def abandon(thread: threading.Thread) -> None:
    """Abandon this thread."""
    if not _abandoned:
        atexit.register(_join, _abandoned)  # of a program that is not ours: it decides how it ends
    _abandoned.add(thread)


def join_or_abandon(threads: Iterable[threading.Thread]) -> None:
    """Waits for a while; abandons those that are still alive."""
    for thread in _join(threads):
        abandon(thread)


def leave(code: int, threads: Iterable[threading.Thread] = _abandoned) -> None:
    """Ends the process with this exit code, at once, if one of these threads does not end in time; else returns."""
    if not _join(threads):
        return
    logging.shutdown()
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError, AttributeError):
            stream.flush()
    os._exit(code)


def _join(threads: Iterable[threading.Thread]) -> list[threading.Thread]:
    """Waits for `WAIT_S` in all; those that are still alive."""
    end = perf_counter() + WAIT_S
    waited = [thread for thread in threads if thread is not threading.current_thread()]
    for thread in waited:
        thread.join(max(0.0, end - perf_counter()))
    return [thread for thread in waited if thread.is_alive()]
