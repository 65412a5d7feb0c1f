"""Who may change a model, and whom a later call ends."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from manual_clock import pass_time, run_jumping
from waiting import give_way

from ox.serve.repository.change_lock import LOOK_S, ChangeLocks
from ox.serve.repository.watchdog import SLOW_S


class Cancelled(list[tuple[str, str, float]]):
    """What was cancelled; `some` is set with the first."""

    def __init__(self) -> None:
        self.some = asyncio.Event()

    def note(self, name: str, why: str, older_s: float) -> None:
        self.append((name, why, older_s))
        self.some.set()


def run(body: Callable[[ChangeLocks, Cancelled], Awaitable[None]]) -> None:
    cancelled = Cancelled()
    turns = ChangeLocks(cancelled.note)
    run_jumping(body(turns, cancelled))  # type: ignore[arg-type]
    assert not turns.locks and not turns._going


def test_one_at_a_time() -> None:
    async def body(turns: ChangeLocks, cancelled: Cancelled) -> None:
        order: list[Any] = []

        async def change(number: int) -> None:
            async with turns.take("m", "same", "superseded"):
                order.append(number)
                await pass_time(3 * LOOK_S)
                order.append(number)

        await asyncio.gather(*map(change, range(4)))
        assert order == [0, 0, 1, 1, 2, 2, 3, 3] and cancelled == []  # the same again does not end what goes on
        async with turns.take("m", 1), turns.take("n", 2):
            assert turns.locked("m") and turns.going("m") == 1 and turns.going("n") == 2 and not turns.locked("o")

    run(body)


def test_another_load_ends_a_slow_one() -> None:
    async def body(turns: ChangeLocks, cancelled: Cancelled) -> None:
        async def first() -> None:
            async with turns.take("m", "old"):
                await cancelled.some.wait()

        task = asyncio.ensure_future(first())
        await give_way()
        async with turns.take("m", "new", "superseded"):
            assert cancelled[0] == ("m", "superseded", SLOW_S)
        await task

    run(body)


def test_one_that_gives_up_waiting() -> None:
    async def body(turns: ChangeLocks, cancelled: Cancelled) -> None:
        async def change(what: str) -> None:
            async with turns.take("m", what):
                await pass_time(LOOK_S)

        first, second, third = (asyncio.ensure_future(change(what)) for what in "abc")
        await pass_time(LOOK_S / 2)
        second.cancel()
        await asyncio.wait((first, second, third))
        assert second.cancelled() and third.exception() is None and not turns.locked("m")

    run(body)


def test_one_that_gives_up_just_when_its_turn_comes() -> None:
    async def body(turns: ChangeLocks, cancelled: Cancelled) -> None:
        for delay in range(8):
            lock = asyncio.Event()

            async def first(lock: asyncio.Event = lock) -> None:
                async with turns.take("m", 1):
                    await lock.wait()

            async def second() -> None:
                async with turns.take("m", 2):
                    pass

            tasks = [asyncio.ensure_future(first()), asyncio.ensure_future(second())]
            await pass_time(LOOK_S / 2)
            lock.set()
            await give_way(delay)
            tasks[1].cancel()
            await asyncio.wait(tasks)
            async with asyncio.timeout(20), turns.take("m", 3):
                pass

    run(body)
