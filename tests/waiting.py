"""Waiting for what another process or the system does. Threads and tasks of a test tell each other by events."""

from __future__ import annotations

import asyncio
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

T = TypeVar("T")


def wait_until(predicate: Callable[[], T], seconds: float = 120, process: subprocess.Popen[Any] | None = None) -> T:
    """What `predicate()` returns, as soon as that is true.

    Args:
        seconds: a limit for what hangs, not for what is slow.
        process: the one on which it depends.

    Raises:
        AssertionError: so many seconds are over, or `process` has ended.
    """
    deadline = time.monotonic() + seconds
    while True:
        code = None if process is None else process.poll()
        if value := predicate():
            return value
        assert code is None, f"{process.args} ended with {code}" if process else ""
        assert time.monotonic() < deadline, f"it did not come true in {seconds:g} seconds"
        time.sleep(0.005)


def wait_for_files(folder: Path, pattern: str, count: int, process: subprocess.Popen[Any]) -> list[Path]:
    """The files of a pattern, as soon as a process has written so many. Raises AssertionError as `wait_until`."""

    def files() -> list[Path]:
        paths = sorted(folder.glob(pattern))
        return paths if len(paths) >= count else []

    return wait_until(files, process=process)


def wait_for_work(thread: threading.Thread, seconds: float = 0.05) -> None:
    """Returns when a thread that runs has spent so much time of the processor from now on."""
    assert thread.ident is not None
    clock = time.pthread_getcpuclockid(thread.ident)
    enough = time.clock_gettime(clock) + seconds
    wait_until(lambda: time.clock_gettime(clock) >= enough)


async def give_way(turns: int = 1) -> None:
    """Has the event loop run what is ready, so many times over."""
    for _ in range(turns):
        await asyncio.sleep(0)


# The first line of a recipe's augment(): in the batch with the number OX_TEST_WAITS, from 1, the process touches the
# file waits.RANK and goes on when a signal has come.
AUGMENT_WAITS = """
import os
import signal
from pathlib import Path

augmented = []


def wait_for_signal():
    read, write = os.pipe()
    os.set_blocking(write, False)
    signal.set_wakeup_fd(write)
    Path(f"waits.{os.environ.get('RANK', 0)}").touch()
    os.read(read, 1)


def augment(batch, generator):
    augmented.append(1)
    if len(augmented) == int(os.environ.get("OX_TEST_WAITS", 0)):
        wait_for_signal()
"""
