"""Memory goes back to the system, also from heaps that have grown."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from manual_clock import pass_time, run_jumping
from waiting import give_way

from ox.clock import SYSTEM
from ox.devices import heap
from ox.serve import allocator
from ox.serve.response_memory import ResponseMemory

# Blocks of 24 MB, freed from the oldest to the newest, behind one that stays at the end of the heap.
CODE = """
import sys
from ox.serve import allocator
def resident():
    return int(open("/proc/self/statm").read().split()[1]) * 4096 / 1e6
if sys.argv[1] == "tuned":
    allocator.configure_malloc()
bytes(24_000_000)  # from which glibc would learn
before = resident()
blocks = [bytes(3_000_000 + n) for n in range(40)] + [b"x" * 24_000_000 for n in range(10)]
peak = resident()
end = bytes(100_000)
del blocks
after = resident()
allocator.trim_heaps()
print(before, peak, after, resident())
"""


def measured(how: str) -> list[float]:
    done = subprocess.run([sys.executable, "-c", CODE, how], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return [float(word) for word in done.stdout.split()]


@pytest.mark.skipif(allocator.glibc() is None, reason="another C library than glibc")
def test_memory_returns() -> None:
    before, peak, after, trimmed = measured("tuned")
    assert peak > before + 200
    assert after < peak - 200  # what is large at once
    assert trimmed < before + 20  # the rest when it is asked for


def test_another_c_library_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(allocator, "glibc", lambda: None)
    monkeypatch.setattr(heap, "glibc", lambda: None)
    allocator.configure_malloc()
    allocator.trim_heaps()


def test_trimmed_once_after_a_peak(monkeypatch: pytest.MonkeyPatch) -> None:
    trims: list[Any] = []
    monkeypatch.setattr(allocator, "trim_heaps", lambda: trims.append(1))
    monkeypatch.setattr(allocator, "TRIM_PEAK", 1 << 20)

    async def body() -> None:
        memory = ResponseMemory(1 << 30, SYSTEM)
        trimmer = allocator.HeapTrimmer(asyncio.get_running_loop(), memory)
        memory.track([np.zeros(1000, np.uint8)])
        await pass_time(2 * allocator.TRIM_DELAY_S)
        assert not trims and memory.peak == 1000  # hardly a peak
        for _ in range(3):
            memory.track([np.zeros(1 << 20, np.uint8)])
            await give_way()
        await pass_time(0.99 * allocator.TRIM_DELAY_S)
        assert trimmer._trim_task is None and memory.peak
        await pass_time(0.01 * allocator.TRIM_DELAY_S)
        assert trimmer._trim_task is not None and memory.peak == 0
        await trimmer._trim_task
        memory.track([np.zeros(1000, np.uint8)])
        await pass_time(2 * allocator.TRIM_DELAY_S)
        assert trims == [1]
        trimmer.close()
        memory.track([np.zeros(1 << 20, np.uint8)])

    run_jumping(body())
