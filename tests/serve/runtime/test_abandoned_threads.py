"""Threads that nobody waits for, at the end of a process."""

from __future__ import annotations

import subprocess
import sys
import threading

import pytest

from ox.serve.runtime import abandoned_threads
from ox.serve.runtime.abandoned_threads import abandon, join_or_abandon, leave

STUCK = """
import sys, threading, time
from ox.serve.runtime import abandoned_threads
from ox.serve.runtime.abandoned_threads import abandon, leave
abandoned_threads.WAIT_S = {wait_s}
thread = threading.Thread(target=time.sleep, args=({seconds},), daemon=True)
thread.start()
abandon(thread)
sys.stdout.write('said')
{last}
sys.stdout.write(' more')
"""


@pytest.mark.slow_after(2)
@pytest.mark.parametrize(
    ("seconds", "wait_s", "last", "code", "out"),
    [
        (600, 0, "leave(5)", 5, "said"),  # at once, and what was written is there
        (0.01, 600, "leave(5)", 0, "said more"),  # it came to its end
        (600, 0, "", 0, "said more"),  # a program that is not ours
        (600, 0, "sys.exit(3)", 3, "said"),
        (600, 0, "threads = []; leave(5, threads)", 0, "said more"),
    ],
)
def test_how_a_process_ends(seconds: float, wait_s: float, last: str, code: int, out: str) -> None:
    line = [sys.executable, "-c", STUCK.format(seconds=seconds, wait_s=wait_s, last=last)]
    done = subprocess.run(line, capture_output=True, text=True, timeout=300, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (code, out, "")


def test_who_is_not_done_in_time_is_abandoned(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(abandoned_threads, "WAIT_S", 0.0)
    go = threading.Event()
    done, stuck = threading.Thread(target=str), threading.Thread(target=go.wait)
    done.start()
    done.join()
    stuck.start()
    join_or_abandon([done, stuck])
    assert stuck in abandoned_threads._abandoned and done not in abandoned_threads._abandoned
    go.set()
    stuck.join()


def test_threads_that_are_done_hinder_nobody() -> None:
    thread = threading.Thread(target=lambda: None)
    thread.start()
    abandon(thread)
    thread.join()
    leave(9)
