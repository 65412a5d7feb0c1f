"""The event loop of a serving process, and the settings of the interpreter that go with it."""

from __future__ import annotations

import asyncio
import gc
import sys


def new_loop() -> asyncio.AbstractEventLoop:
    """uvloop's event loop where it exists, asyncio's own elsewhere."""
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()


def settle() -> None:
    """Sets the interpreter up for serving, once everything is loaded."""
    sys.setswitchinterval(2e-4)  # the loop and the instances' threads take turns; 5 ms is too long a turn
    gc.collect()
    gc.freeze()  # what was loaded stays: no collection need look at it again
