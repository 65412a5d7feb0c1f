"""What `ox serve` says while it starts."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable
from typing import Any

import pytest
from manual_clock import pass_time, run_jumping

from ox.errors import ServeError
from ox.serve import run


class Starting:
    """A server with a model that answers soon, and one whose load takes until `go` is set."""

    address, answers = "127.0.0.1:8000", 0

    def __init__(self) -> None:
        self.go = asyncio.Event()
        self.models: list[str] = []

    async def start(self) -> None: ...

    async def stop(self) -> None: ...

    async def loaded(self) -> None:
        await self.go.wait()
        self.models.append("late 1")

    async def model_lines(self) -> list[str]:
        return list(self.models)

    def greeting(self) -> list[str]:
        return [*self.models, "ready in 1 ms · http://127.0.0.1:8000"]


def test_a_model_is_shown_once_it_answers_whatever_others_wait_for() -> None:
    lines: list[str] = []

    async def body() -> None:
        server = Starting()
        starting = asyncio.ensure_future(run._start(server, lines.append))
        await pass_time(1.5 * run.GREETING_WAIT_S)
        assert len(lines) == 1
        server.models.append("soon 1")
        await pass_time(run.GREETING_WAIT_S)
        assert lines[-1] == "soon 1"
        await pass_time(5 * run.GREETING_WAIT_S)  # it is said once
        server.go.set()
        await starting

    run_jumping(body())
    assert lines[0].startswith("listening on 127.0.0.1:8000 while models are loading")
    assert lines[1:] == ["soon 1", "late 1", "ready in 1 ms · http://127.0.0.1:8000"]


@pytest.mark.parametrize("loaded", [True, False])
def test_a_signal_stops_the_server_then_it_says_so(loaded: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    lines: list[str] = []

    class Stopping(Starting):
        async def stop(self) -> None:
            lines.append("stop")

    def at_signals(loop: asyncio.AbstractEventLoop, stop: Callable[[], None]) -> Callable[[], None]:
        loop.call_soon(stop)
        return lambda: lines.append("a second signal ends the process")

    async def body() -> None:
        server = Stopping()
        if loaded:
            server.go.set()
        await run._run_until_signal(server, lines.append)

    monkeypatch.setattr(run, "_at_signals", at_signals)
    asyncio.run(body())
    assert lines[-4:] == ["draining", "a second signal ends the process", "stop", "stopped after 0 answers"]


def test_a_start_that_fails_leaves_no_task() -> None:
    """asyncio would print that it was destroyed, after the error."""
    complaints: list[dict[str, Any]] = []

    class Failing(Starting):
        async def start(self) -> None:
            raise ServeError("port 8000 is in use")

    loop = asyncio.new_event_loop()
    loop.set_exception_handler(lambda _, complaint: complaints.append(complaint))
    with pytest.raises(ServeError, match="in use"):
        run.run(loop, run._run_until_signal(Failing(), print))
    gc.collect()
    assert complaints == []
