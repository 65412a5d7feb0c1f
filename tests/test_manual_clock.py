"""The clock that tests move: threads, loops and conditions go by it, and by nothing else."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable

import pytest
from manual_clock import ManualClock, run_jumping

from ox.clock import SYSTEM, Clock, Event


def in_thread(work: Callable[[], object]) -> tuple[threading.Thread, list[object]]:
    """Runs it in a thread; what it gave, once that has ended."""
    values: list[object] = []
    thread = threading.Thread(target=lambda: values.append(work()), daemon=True)
    thread.start()
    return thread, values


def test_a_thread_sleeps_until_the_time_is_moved() -> None:
    clock = ManualClock()
    thread, values = in_thread(lambda: clock.sleep(5) or clock.now())
    clock.until_waiting()
    clock.advance(4.5)
    assert thread.is_alive()
    clock.advance(0.5)
    thread.join(60)
    assert values == [1005.0] and clock.calendar() == 1_700_000_005.0


def test_each_sleeper_wakes_at_its_own_time() -> None:
    clock, ends = ManualClock(), []
    threads = [in_thread(lambda s=s: (clock.sleep(s), ends.append((s, clock.now()))))[0] for s in (3, 1, 2)]
    for waiting in (3, 2, 1):
        clock.until_waiting(waiting)
        clock.advance(1)
        threads[{3: 1, 2: 2, 1: 0}[waiting]].join(60)
    assert ends == [(1, 1001.0), (2, 1002.0), (3, 1003.0)]


def test_a_sleep_is_over_after_as_many_seconds_at_any_time() -> None:
    """1000.2 + 0.1 is more than 1000.3."""
    clock = ManualClock()
    thread, _ = in_thread(lambda: [clock.sleep(0.1) for _ in range(20)])
    for k in range(20):
        clock.until_waiting()
        (before,) = clock._waits
        clock.advance(0.1)
        assert not before.goes_on(clock.now()), k
    thread.join(60)
    assert not thread.is_alive() and clock.now() == 1002.0


@pytest.mark.parametrize("seconds", [1, 0], ids=["its time is over", "what it waits for has come"])
def test_a_thread_that_has_yet_to_wake_up_does_not_wait(seconds: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its next wait would begin after the next move of the time."""
    clock, condition, done = ManualClock(), threading.Condition(), threading.Event()

    def wait() -> None:
        with condition:
            clock.wait(condition, done.is_set, 1)

    thread, _ = in_thread(wait)
    clock.until_waiting()
    with condition:
        if not seconds:
            done.set()
        clock.advance(seconds)
        monkeypatch.setattr("manual_clock.HANGS_S", 0.01)
        with pytest.raises(AssertionError, match=r"after 0\.01 seconds 0 threads wait by this clock, not 1"):
            clock.until_waiting()
    thread.join(60)
    assert not thread.is_alive()


@pytest.mark.parametrize("clock", [ManualClock(), SYSTEM], ids=["manual", "system"])
def test_an_event_that_is_set_ends_a_wait(clock: Clock) -> None:
    event = Event(clock)
    assert not event.is_set()
    thread, values = in_thread(lambda: event.wait(1000))
    event.set()
    thread.join(60)
    assert values == [True] and event.is_set() and event.wait(0)


def test_an_event_that_is_not_set_ends_at_its_time() -> None:
    clock = ManualClock()
    event = Event(clock)
    assert event.wait(0) is False
    thread, values = in_thread(lambda: event.wait(10))
    clock.until_waiting()
    clock.advance(10)
    thread.join(60)
    assert values == [False]
    assert Event(SYSTEM).wait(0.001) is False


def test_a_wait_without_a_limit_does_not_end_with_the_time() -> None:
    clock = ManualClock()
    event = Event(clock)
    thread, values = in_thread(event.wait)
    clock.advance(1e9)
    assert thread.is_alive()
    event.set()
    thread.join(60)
    assert values == [True]


def test_a_loop_in_another_thread_goes_by_the_clock() -> None:
    """Its selector waits for files, for `advance` and for calls from other threads, not for the timer."""
    clock = ManualClock()
    armed, told, checked = (threading.Event() for _ in range(3))

    async def body() -> float:
        loop = asyncio.get_running_loop()
        timer = asyncio.ensure_future(asyncio.sleep(60))
        await asyncio.sleep(0)
        loop.call_soon(armed.set)
        await asyncio.to_thread(told.wait, 60)  # a thread wakes it, no timer
        assert not timer.done()
        checked.set()
        await timer
        return loop.time()

    thread, values = in_thread(lambda: clock.run(body()))
    assert armed.wait(60)
    clock.advance(59)
    told.set()
    assert checked.wait(60)
    clock.advance(1)
    thread.join(60)
    assert values == [1060.0]


def test_where_a_block_ends_loops_begin_to_jump() -> None:
    armed = threading.Event()

    async def body() -> float:
        asyncio.get_running_loop().call_soon(armed.set)
        await asyncio.sleep(3600)
        return asyncio.get_running_loop().time()

    with ManualClock() as clock:
        thread, values = in_thread(lambda: clock.run(body()))
        assert armed.wait(60) and thread.is_alive() and clock.now() == 1000.0
    thread.join(60)
    assert values == [4600.0]


def test_time_that_moves_before_the_loop_waits_is_not_missed() -> None:
    clock = ManualClock()

    async def body() -> float:
        timer = asyncio.ensure_future(asyncio.sleep(60))
        await asyncio.sleep(0)
        clock.advance(60)  # on the loop itself
        await timer
        return clock.now()

    assert clock.run(body()) == 1060.0
    clock.advance(1)  # the loop is closed


def test_a_jumping_loop_does_all_that_is_ready_first() -> None:
    seen = []

    async def wait(seconds: float) -> None:
        await asyncio.sleep(seconds)
        seen.append((seconds, asyncio.get_running_loop().time()))

    async def body() -> None:
        ends = [asyncio.ensure_future(wait(seconds)) for seconds in (3600, 0, 60)]
        await asyncio.gather(*ends)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(asyncio.Event().wait(), 86400)
        seen.append(("day", asyncio.get_running_loop().time()))

    run_jumping(body())
    assert seen == [(0, 1000.0), (60, 1060.0), (3600, 4600.0), ("day", 91000.0)]


def test_what_hangs_is_cancelled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("manual_clock.HANGS_S", 0.01)

    async def body() -> None:
        await asyncio.Event().wait()

    with pytest.raises(AssertionError, match=r"it did not end in 0\.01 seconds"):
        ManualClock().run(body())


def test_who_cancels_itself_does_not_hang() -> None:
    async def body() -> None:
        raise asyncio.CancelledError("own")

    with pytest.raises(asyncio.CancelledError, match="own"):
        ManualClock().run(body())


def test_the_system_clock() -> None:
    before = SYSTEM.now(), SYSTEM.calendar()
    SYSTEM.sleep(0.001)
    assert SYSTEM.now() > before[0] and SYSTEM.calendar() > before[1] > 1.7e9
    loop = SYSTEM.new_event_loop()
    try:
        assert abs(loop.time() - SYSTEM.now()) < 60
    finally:
        loop.close()
