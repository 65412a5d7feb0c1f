"""The event loop of a serving process, and the settings of the interpreter that go with it."""

from __future__ import annotations

import asyncio
import gc
import logging
import sys

from ox.serve.allocator import tune

log = logging.getLogger("ox.serve")


def new_loop() -> asyncio.AbstractEventLoop:
    """uvloop's event loop where it exists, asyncio's own elsewhere."""
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()


def settle() -> None:
    """Sets the process up for serving, once everything is loaded."""
    tune()
    sys.setswitchinterval(2e-4)  # the loop and the instances' threads take turns; 5 ms is too long a turn
    gc.collect()
    gc.freeze()  # what was loaded stays: no collection need look at it again
    _many_files()


def _many_files() -> None:
    """As many connections as the system allows us: the 1,024 files that a process starts with are for select()."""
    try:
        import resource
    except ImportError:  # Windows has no such limit
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        if soft != hard:
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    except (ValueError, OSError):  # macOS says "unlimited" and does not mean it
        log.debug("the limit of open files stays at %d", soft)
