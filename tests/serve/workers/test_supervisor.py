"""The supervisor alone, with real processes or in place of them."""

from __future__ import annotations

import asyncio
import gc
import io
import os
import signal
from pathlib import Path
from typing import Any

import pytest
from waiting import give_way, wait_until

from ox.clock import SYSTEM
from ox.serve.config.model_config import ModelConfig
from ox.serve.config.request_limits import RequestLimits
from ox.serve.config.server_config import ServerConfig
from ox.serve.repository.repository import Repository
from ox.serve.telemetry.logged_output import LoggedOutput
from ox.serve.workers import supervisor as supervision
from ox.serve.workers.shared import SharedService
from ox.serve.workers.shared_number import SharedNumber
from ox.serve.workers.supervisor import Supervisor, Worker
from ox.serve.workers.worker_config import WorkerConfig


def test_a_worker_that_is_being_made_ends_with_the_others(mlp: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is there for the system before the supervisor has its name."""
    made: list[asyncio.subprocess.Process] = []
    real, slow, stopping = asyncio.create_subprocess_exec, asyncio.Event(), asyncio.Event()

    async def create(*words: str, **options: Any) -> asyncio.subprocess.Process:
        process = await real(*words, **options)
        made.append(process)
        if len(made) > 2:
            slow.set()
            await stopping.wait()
        return process

    async def body() -> None:
        monkeypatch.setattr(asyncio, "create_subprocess_exec", create)
        settings = ServerConfig(port=0, workers=2)
        supervisor = Supervisor(
            WorkerConfig([str(mlp)], ModelConfig(device="cpu"), RequestLimits(), settings), lambda line: None
        )
        await supervisor.start()
        await supervisor.loaded()
        os.kill(made[0].pid, signal.SIGKILL)
        await slow.wait()
        ended = asyncio.ensure_future(supervisor.stop())
        await give_way()
        assert supervisor._stopping and not ended.done()
        stopping.set()
        await ended
        assert len(made) == 3 and all(process.returncode is not None for process in made)

    asyncio.run(body())


def test_a_stop_during_the_start_leaves_no_error_and_waits_for_no_import(mlp: Path) -> None:
    """Workers that nobody could have reached are killed, and nobody is told that they have ended."""
    complaints: list[dict[str, Any]] = []

    async def body() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, complaint: complaints.append(complaint))
        settings = ServerConfig(port=0, workers=2)
        supervisor = Supervisor(
            WorkerConfig([str(mlp)], ModelConfig(device="cpu"), RequestLimits(), settings), lambda line: None
        )
        starting = asyncio.ensure_future(supervisor.start())
        await asyncio.to_thread(wait_until, lambda: len(supervisor._workers) == 2)
        starting.cancel()
        await asyncio.wait((starting,))
        await supervisor.stop()
        assert [worker.process.returncode for worker in supervisor._workers.values()] == [-signal.SIGKILL] * 2
        assert supervisor.answers == 0

    asyncio.run(body())
    gc.collect()
    assert complaints == []


def test_a_stop_while_workers_are_being_made_makes_no_more(mlp: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[asyncio.subprocess.Process] = []
    real = asyncio.create_subprocess_exec

    async def body() -> None:
        async def create(*words: str, **options: Any) -> asyncio.subprocess.Process:
            made.append(await real(*words, **options))
            if len(made) == 2:
                starting.cancel()
                await give_way()
            return made[-1]

        monkeypatch.setattr(asyncio, "create_subprocess_exec", create)
        settings = ServerConfig(port=0, workers=4)
        supervisor = Supervisor(WorkerConfig([str(mlp)], ModelConfig(), RequestLimits(), settings), lambda line: None)
        starting = asyncio.ensure_future(supervisor.start())
        await asyncio.wait((starting,))
        await supervisor.stop()
        assert [process.returncode for process in made] == [-signal.SIGKILL] * 2

    asyncio.run(body())


def test_what_a_worker_counts_is_looked_at_without_being_asked(mlp: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Should it die, so much of it is known."""
    monkeypatch.setattr(supervision, "HEARTBEATS_PER_SNAPSHOT", 1)

    async def body() -> None:
        settings = ServerConfig(port=0, workers=1)
        supervisor = Supervisor(
            WorkerConfig([str(mlp)], ModelConfig(device="cpu"), RequestLimits(), settings), lambda line: None
        )
        await supervisor.start()
        await supervisor.loaded()
        worker = supervisor._workers[0]
        await asyncio.to_thread(wait_until, lambda: worker.figures is not None and "mlp" in worker.figures["models"])
        assert worker.figures["server"]["reloads"] == {"mlp": {"loaded": 1}}
        worker.process.kill()
        await asyncio.to_thread(
            wait_until, lambda: supervisor._workers[0] is not worker and supervisor._workers[0].ready
        )
        figures = await supervisor._figures()
        assert figures["server"]["reloads"] == {"mlp": {"loaded": 2}} and figures["workers"] == 1
        await supervisor.stop()

    asyncio.run(body())


def test_no_worker_is_ready_before_the_others() -> None:
    """A client that one worker has told that the server is ready hears the same from the other one, whatever messages
    that has not read; and while one does not answer, nobody says so."""

    async def body() -> None:
        settings = ServerConfig(port=0, workers=2)
        supervisor = Supervisor(WorkerConfig([], ModelConfig(), RequestLimits(), settings), print)
        reads = [asyncio.Event(), asyncio.Event()]

        def worker(number: int) -> SharedService:
            published = SharedNumber(os.dup(supervisor._published.descriptor))

            class Channel:
                """The link between the two, of which the worker's end reads nothing until it is told to."""

                async def ask(self, call: str, arguments: dict[str, Any]) -> Any:
                    if call == "ready_everywhere":
                        await reads[number].wait()
                        return service.add_ready_everywhere(arguments)
                    return await supervisor._answer(number, call, arguments)

                def tell(self, call: str, arguments: dict[str, Any]) -> None:
                    assert (call, arguments) == ("published", {})  # only for those who watch

            channel: Any = Channel()
            service = SharedService(Repository(), RequestLimits(), SYSTEM, channel, published)
            process: Any = None
            supervisor._workers[number] = Worker(number, process, channel)
            supervisor._workers[number].may_serve = True
            return service

        services = [worker(0), worker(1)]

        def ready() -> list[bool]:
            return [service.server_ready() for service in services]

        starts = [asyncio.ensure_future(service.start_reports()) for service in services]
        reads[0].set()
        await give_way(20)
        assert ready() == [False, False]
        reads[1].set()
        await asyncio.gather(*starts)
        assert ready() == [True, True]
        for number in range(2):  # both end, and one comes again: it serves when it is ready
            supervisor._on_disconnect(supervisor._workers[number])
        services = [worker(0)]
        await services[0].start_reports()
        assert ready() == [True]
        supervisor._workers.clear()
        await supervisor.stop()

    asyncio.run(body())


def test_log_settings_are_those_of_the_supervisor_too() -> None:
    """Whose lines stand between those of the workers."""
    stream = io.StringIO()
    output = LoggedOutput("json", "info", stream)

    class Channel:
        async def ask(self, call: str, arguments: dict[str, Any], seconds: float | None) -> Any:
            return arguments

    async def body() -> None:
        supervisor = Supervisor(WorkerConfig([], ModelConfig(), RequestLimits(), ServerConfig(port=0)), output.show)
        process: Any = None
        channel: Any = Channel()
        worker = supervisor._workers[0] = Worker(0, process, channel)
        worker.ready = True
        for settings in ({"log_format": "text"}, {"log_info": False}):
            call = {"call": "log_settings", "with": {"settings": settings}, "changes": True}
            await supervisor._answer(0, "broadcast", call)
            await supervisor._answer(0, "show", {"line": f"after {settings}"})
        del supervisor._workers[0]
        await supervisor.stop()

    try:
        asyncio.run(body())
    finally:
        output.close()
    assert [line.split(maxsplit=2)[2] for line in stream.getvalue().splitlines()] == [
        "worker 0: after {'log_format': 'text'}"
    ]
