"""The event loop of a serving process, and the interpreter settings for serving."""

from __future__ import annotations

import asyncio
import gc
import logging
import sys
from collections.abc import Coroutine
from typing import Any

from ox.serve.allocator import configure_malloc

log = logging.getLogger("ox.serve")


def run(loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, None]) -> None:
    """Runs `work` to its end and closes the loop. `ox.call_site` looks for the user's line no further than this frame:
    errors in callbacks are not errors of the line that started the server."""
    try:
        loop.run_until_complete(work)
    finally:
        loop.close()


def tune_process() -> None:
    """Tunes allocator, thread switching, garbage collector and file limit, after the models are loaded."""
    configure_malloc()
    sys.setswitchinterval(2e-4)  # the event loop shares the GIL with the instances; 5 ms is too long a delay
    gc.collect()
    gc.freeze()  # loaded models stay alive: exclude them from garbage collection
    _raise_file_limit()


def _raise_file_limit() -> None:
    """Raises the soft limit of open files, 1,024 by default, to the hard limit."""
    try:
        import resource
    except ImportError:  # Windows has no such limit
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        if soft != hard:
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    except (ValueError, OSError):  # macOS reports "unlimited" and refuses it
        log.debug("cannot raise the limit of open files from %d", soft)
