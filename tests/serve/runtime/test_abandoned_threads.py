"""Threads that nobody waits for, at the end of a process."""

from __future__ import annotations

import subprocess
import sys
import threading

import pytest

from ox.serve.runtime.abandoned_threads import abandon, leave

STUCK = """
import sys, threading, time
from ox.serve.runtime.abandoned_threads import abandon, leave
thread = threading.Thread(target=time.sleep, args=({seconds},), daemon=True)
thread.start()
abandon(thread)
sys.stdout.write('said')
{last}
sys.stdout.write(' more')
"""


@pytest.mark.slow_after(2)
@pytest.mark.parametrize(
    ("seconds", "last", "code", "out"),
    [
        (60, "leave(5)", 5, "said"),  # at once, and what was written is there
        (0.2, "leave(5)", 0, "said more"),  # it came to its end
        (60, "", 0, "said more"),  # a program that is not ours
        (60, "sys.exit(3)", 3, "said"),
        (60, "threads = []; leave(5, threads)", 0, "said more"),
    ],
)
def test_how_a_process_ends(seconds: float, last: str, code: int, out: str) -> None:
    line = [sys.executable, "-c", STUCK.format(seconds=seconds, last=last)]
    done = subprocess.run(line, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (code, out, "")


def test_threads_that_are_done_hinder_nobody() -> None:
    thread = threading.Thread(target=lambda: None)
    thread.start()
    abandon(thread)
    thread.join()
    leave(9)
