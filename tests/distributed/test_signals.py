"""Which signals a run takes, and which it leaves to the program."""

from __future__ import annotations

import os
import signal

from ox.distributed.signals import STOPPED, handle_signals


def test_signals_to_stop_and_for_a_checkpoint() -> None:
    stop: list[int] = []
    checkpoint: list[int] = []
    before = {number: signal.getsignal(number) for number in range(1, signal.NSIG)}
    with handle_signals(stop.append, checkpoint.append):
        for number in (signal.SIGTERM, signal.SIGUSR2, signal.SIGHUP, signal.SIGINT, signal.SIGUSR1):
            os.kill(os.getpid(), number)
    assert stop == [signal.SIGTERM, signal.SIGHUP, signal.SIGINT] and checkpoint == [signal.SIGUSR2, signal.SIGUSR1]
    assert {number: signal.getsignal(number) for number in range(1, signal.NSIG)} == before
    assert STOPPED == (129, 130, 143)


def test_a_program_keeps_its_own_handlers_and_what_nohup_ignores() -> None:
    seen: list[int] = []
    others: list[int] = []
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN), signal.signal(signal.SIGUSR1, lambda n, _: seen.append(n))
    try:
        with handle_signals(others.append, others.append):
            os.kill(os.getpid(), signal.SIGHUP)
            os.kill(os.getpid(), signal.SIGUSR1)
    finally:
        signal.signal(signal.SIGHUP, before[0])
        signal.signal(signal.SIGUSR1, before[1])
    assert (seen, others) == ([signal.SIGUSR1], [])
