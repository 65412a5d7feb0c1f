"""What a rank hears from the store after the meeting: that another rank has ended or hangs, or nothing any more."""

from __future__ import annotations

import os
import select
import signal
import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from ox.clock import Clock
from ox.distributed import heartbeat
from ox.distributed.client import receive

GRACE = 0.5  # seconds in which a launcher sees which rank ended first, and this rank prints an error of its own

store_process: list[int] = []  # which this rank has started
answered = threading.Event()  # the store has read that this rank leaves


@contextmanager
def exit_on_message(connection: socket.socket, rank: int, clock: Clock) -> Iterator[None]:
    """A context in which the system ends this process when the store has news: `MPI_Init` holds Python's lock and
    would wait for a rank that has ended for ever."""
    import fcntl  # not on Windows, where there is no such signal

    fcntl.fcntl(connection, fcntl.F_SETOWN, os.getpid())
    flags = fcntl.fcntl(connection, fcntl.F_GETFL)
    fcntl.fcntl(connection, fcntl.F_SETFL, flags | os.O_ASYNC)  # news become SIGIO
    try:
        if select.select([connection], [], [], 0)[0]:  # news from before
            watch(connection, rank, clock)
        yield
    finally:
        fcntl.fcntl(connection, fcntl.F_SETFL, flags)


class SilentStore(Exception):
    """The store has not answered in time."""


def next_message(connection: socket.socket, silence: float, clock: Clock) -> Any:
    """The next frame that is no answer of the store. Raises SilentStore when nothing came for `silence` seconds."""
    pause = silence / heartbeat.PARTS if silence else None
    heard = clock.now()
    while True:
        before = clock.now()
        if select.select([connection], [], [], pause)[0]:
            heard = clock.now()
            message = receive(connection)
            if "left" in message:
                answered.set()
            elif "beat" not in message:
                return message
        elif clock.now() - before > silence / 2:  # this process itself was stopped: answers may wait to be read
            heard = clock.now()
        elif clock.now() - heard > silence:
            raise SilentStore


def watch(connection: socket.socket, rank: int, clock: Clock, silence: float = 0.0) -> None:
    """Ends this rank when the store says that another has ended, or when the store has gone or has been silent for so
    many seconds (0: however long). Returns when all others have ended well."""
    try:
        message = next_message(connection, silence, clock)
        if "alone" in message:
            answered.set()
            return
        how, code = f"rank {message['ended']} {message['how']}", int(message["code"])
    except SilentStore:
        how, code = f"the store of the ranks, at rank 0, has gone (no answer for {silence:g} s)", 1
        for process in store_process:  # it is stopped, and would stay
            os.kill(process, signal.SIGKILL)
    except (OSError, ValueError, KeyError, TypeError) as error:
        how, code = f"the store of the ranks, at rank 0, has gone ({error})", 1
    clock.sleep(GRACE)
    with suppress(OSError, ValueError):
        sys.stdout.flush()
        print(f"ox: {how}; rank {rank} ends, too", file=sys.stderr, flush=True)
    os._exit(code)
