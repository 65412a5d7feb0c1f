"""Who may change a model, and whom a later call ends."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from waiting import give_way

from ox.serve.repository import change_lock as module
from ox.serve.repository.change_lock import ChangeLocks
from ox.serve.repository.watchdog import SLOW_S

Cancelled = list[tuple[str, str, float]]


def run(body: Callable[[ChangeLocks, Cancelled], Awaitable[None]], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LOOK_S", 0.01)
    cancelled: Cancelled = []
    turns = ChangeLocks(lambda *what: cancelled.append(what))
    asyncio.run(body(turns, cancelled))  # type: ignore[arg-type]
    assert not turns.locks and not turns._going


def test_one_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    async def body(turns: ChangeLocks, cancelled: Cancelled) -> None:
        order: list[Any] = []

        async def change(number: int) -> None:
            async with turns.take("m", "same", "superseded"):
                order.append(number)
                await asyncio.sleep(0.03)
                order.append(number)

        await asyncio.gather(*map(change, range(4)))
        assert order == [0, 0, 1, 1, 2, 2, 3, 3] and cancelled == []  # the same again does not end what goes on
        async with turns.take("m", 1), turns.take("n", 2):
            assert turns.locked("m") and turns.going("m") == 1 and turns.going("n") == 2 and not turns.locked("o")

    run(body, monkeypatch)


def test_another_load_ends_a_slow_one(monkeypatch: pytest.MonkeyPatch) -> None:
    async def body(turns: ChangeLocks, cancelled: Cancelled) -> None:
        async def first() -> None:
            async with turns.take("m", "old"):
                while not cancelled:
                    await asyncio.sleep(0.01)

        task = asyncio.ensure_future(first())
        await give_way()
        async with turns.take("m", "new", "superseded"):
            assert cancelled[0] == ("m", "superseded", SLOW_S)
        await task

    run(body, monkeypatch)


def test_one_that_gives_up_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    async def body(turns: ChangeLocks, cancelled: Cancelled) -> None:
        async def change(what: str) -> None:
            async with turns.take("m", what):
                await asyncio.sleep(0.05)

        first, second, third = (asyncio.ensure_future(change(what)) for what in "abc")
        await asyncio.sleep(0.02)
        second.cancel()
        await asyncio.wait((first, second, third))
        assert second.cancelled() and third.exception() is None and not turns.locked("m")

    run(body, monkeypatch)


def test_one_that_gives_up_just_when_its_turn_comes(monkeypatch: pytest.MonkeyPatch) -> None:
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
            await asyncio.sleep(0.02)
            lock.set()
            for _ in range(delay):
                await give_way()
            tasks[1].cancel()
            await asyncio.wait(tasks)
            async with asyncio.timeout(20), turns.take("m", 3):
                pass

    run(body, monkeypatch)
