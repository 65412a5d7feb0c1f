"""Signals that stop a run, and signals that ask it for a checkpoint.

A job scheduler warns with SIGUSR1 or SIGUSR2 before it sends SIGTERM (`#SBATCH --signal=USR1@120`), and a terminal that
is closed sends SIGHUP.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

STOP = (signal.SIGINT, signal.SIGTERM)
# not on Windows; a program that ignores one (nohup) or handles it itself keeps doing so
HANGUP = tuple(getattr(signal, name) for name in ("SIGHUP",) if hasattr(signal, name))
CHECKPOINT = tuple(getattr(signal, name) for name in ("SIGUSR1", "SIGUSR2") if hasattr(signal, name))
STOPPED = tuple(sorted(128 + number for number in (*STOP, *HANGUP)))  # exit codes of a run that a signal has stopped


@contextmanager
def handle_signals(stop: Callable[[int], None], checkpoint: Callable[[int], None]) -> Iterator[None]:
    """Within the block, call `stop` with the number of SIGINT, SIGTERM or SIGHUP, and `checkpoint` with that of SIGUSR1
    or SIGUSR2. In the main thread only. After SIGHUP, what is printed to the terminal goes nowhere."""
    terminals = [descriptor for descriptor in (1, 2) if _is_terminal(descriptor)]

    def hangup(number: int, _: FrameType | None) -> None:
        for descriptor in terminals:
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, descriptor)
            os.close(nowhere)
        stop(number)

    handlers = {number: lambda number, _: stop(number) for number in STOP}
    optional = dict.fromkeys(HANGUP, hangup) | {number: lambda number, _: checkpoint(number) for number in CHECKPOINT}
    handlers |= {number: own for number, own in optional.items() if signal.getsignal(number) == signal.SIG_DFL}
    before = {number: signal.signal(number, own) for number, own in handlers.items()}
    try:
        yield
    finally:
        for number, old in before.items():
            signal.signal(number, old)


def _is_terminal(descriptor: int) -> bool:
    try:
        return os.isatty(descriptor)
    except OSError:  # closed
        return False
