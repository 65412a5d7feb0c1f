"""When a worker that does not answer has to go."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from itertools import count
from pathlib import Path

import pytest
from waiting import wait_until

from ox.serve.workers.heartbeat import EVERY, HANGS, STILL, Heartbeat, state_of


def looks(heartbeat: Heartbeat, most: int = 1000) -> tuple[int, str]:
    """How many looks it takes until the worker has to go, and why."""
    for number in range(1, most + 1):
        if (why := heartbeat.missed()) is not None:
            return number, why
    raise AssertionError("it may stay for ever")


def test_one_that_is_stopped_goes_at_the_second_look() -> None:
    assert looks(Heartbeat(lambda: ("T", 5))) == (2, "has been stopped (SIGSTOP)")


def test_a_stop_that_ended_does_not_count() -> None:
    states = iter([("T", 5), ("R", 5), ("T", 6), ("S", 7), ("T", 7), ("T", 7)])
    assert looks(Heartbeat(lambda: next(states)))[0] == 6


def test_one_that_sleeps_and_does_not_answer() -> None:
    number, why = looks(Heartbeat(lambda: ("S", 5)))
    assert number == 1 + STILL / EVERY and why == "has used no CPU time and not responded for 3 s"


@pytest.mark.parametrize("letter", ["R", "S", "D", "t", ""])
def test_one_that_is_busy_has_longer(letter: str) -> None:
    """It parses a large body, holds the lock of the interpreter, waits for a disk or a debugger; or nobody can tell."""
    used = count()
    heartbeat = Heartbeat(lambda: (letter, next(used)) if letter else None)
    number, why = looks(heartbeat)
    assert number == HANGS / EVERY and why == "has not responded for 30 s"


def test_a_starved_process_is_not_still() -> None:
    assert looks(Heartbeat(lambda: ("R", 5)))[0] == looks(Heartbeat(lambda: ("D", 5)))[0] == HANGS / EVERY


def test_an_answer_begins_anew() -> None:
    heartbeat = Heartbeat(lambda: ("S", 5))
    for _ in range(100):
        assert heartbeat.missed() is None
        assert heartbeat.missed() is None
        heartbeat.answered()


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="asks /proc")
def test_the_state_of_a_process() -> None:
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    try:
        assert state_of(child.pid) is not None
        os.kill(child.pid, signal.SIGSTOP)
        wait_until(lambda: (state_of(child.pid) or "?")[0] == "T")
        state = state_of(child.pid)
        assert state is not None and state[1] >= 0
    finally:
        child.kill()
        child.wait()
    assert state_of(child.pid) is None
    state = state_of(os.getpid())
    assert state is not None and state[0] == "R" and state[1] > 0
