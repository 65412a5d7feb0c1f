"""``python -m ox.serve.workers.worker LOG LEVEL FD NUMBER [UNIX]``: one of several processes behind the same ports.

It reads its `WorkerConfig` from the socket FD; NUMBER is the memory of a `SharedNumber`, UNIX a Unix domain socket that
all workers listen on. LOG is the form of the log, or none. When the supervisor ends or the connection breaks, the
worker drains and ends.
"""

from __future__ import annotations

import asyncio
import logging
import signal
import socket
import sys
import threading
from contextlib import suppress
from dataclasses import asdict
from functools import partial
from typing import Any

from ox.clock import SYSTEM, Clock
from ox.errors import OxError
from ox.serve.config.request_limits import RequestLimits
from ox.serve.repository.repository import Repository
from ox.serve.repository.thread import in_thread
from ox.serve.runtime.abandoned_threads import leave
from ox.serve.server import Server
from ox.serve.service import Service
from ox.serve.telemetry.logged_output import LoggedOutput
from ox.serve.transport.event_loop import tune_process
from ox.serve.workers.control_channel import LONGEST, ControlChannel
from ox.serve.workers.shared import SharedService
from ox.serve.workers.shared_number import SharedNumber
from ox.serve.workers.worker_config import WorkerConfig

log = logging.getLogger("ox.serve")


async def work(control: socket.socket, published: SharedNumber, inherited: socket.socket | None = None) -> None:
    """Serves until the supervisor sends `stop` or disconnects."""
    stopping = asyncio.Event()
    server: Server | None = None
    service: SharedService | None = None
    listening = False

    def among_several(repository: Repository, limits: RequestLimits, clock: Clock) -> Service:
        nonlocal service
        service = SharedService(repository, limits, clock, channel, published)
        return service

    def show(line: str) -> None:
        with suppress(RuntimeError):  # the loop has been closed
            loop.call_soon_threadsafe(channel.tell, "show", {"line": line})

    def create_server(config: WorkerConfig, wait: bool, responses: str) -> Server:
        server = Server(
            config.paths,
            options=config.options,
            limits=config.limits,
            service=among_several,
            wait=wait,
            show=show,
            **asdict(config.settings),
        )
        server.inherited = inherited
        server.responses_path = responses
        tune_process()
        return server

    async def answer(call: str, arguments: dict[str, Any]) -> Any:
        nonlocal server, listening
        if call == "begin":
            begin = partial(create_server, WorkerConfig.from_json(arguments["config"]), arguments["wait"],
                            arguments["responses"])  # fmt: skip
            server = await in_thread(begin, "ox-begin")
            return None
        if call == "stop":
            answers = server.answers if server is not None and listening else 0
            stopping.set()
            return answers
        if call == "pulse":
            return None
        assert server is not None and service is not None, "begin comes first"
        if call == "cancel":
            return server.model_manager.give_up(arguments["name"])
        if call == "listen":
            for name, parameters in arguments["replay"]:
                try:
                    await service.call_locally(name, parameters)
                except OxError as error:  # what was there then may be gone: a region, a model's files
                    log.warning("a new worker cannot follow the call '%s': %s", name, error.one_line())
            await service.start_reports()
            await server.start()
            listening = True
            return None
        if call == "ready_everywhere":
            return service.add_ready_everywhere(arguments)
        if call == "published":
            return service.repository.refresh()  # for those who watch the readiness
        if call == "model_lines":
            return await server.model_lines()
        if call == "loaded":
            await server.loaded()
            tune_process()
            return server.greeting()
        return await service.call_locally(call, arguments)

    loop = asyncio.get_running_loop()
    reader, writer = await asyncio.open_unix_connection(sock=control, limit=LONGEST)
    channel = ControlChannel(reader, writer, answer)
    reading = asyncio.ensure_future(channel.run())
    stopped = asyncio.ensure_future(stopping.wait())
    await asyncio.wait((reading, stopped), return_when=asyncio.FIRST_COMPLETED)
    if server is not None and listening:
        await server.stop()
    stopped.cancel()
    channel.close()
    await reading


def main() -> None:
    # Ctrl-C reaches every process of the terminal; the supervisor decides what it means.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    form, level, control, number, *files = sys.argv[1:]
    if form != "none":
        LoggedOutput(form, level)
    loop = SYSTEM.new_event_loop()
    try:
        sockets = [socket.socket(fileno=int(file)) for file in (control, *files)]
        loop.run_until_complete(work(sockets[0], SharedNumber(int(number)), *sockets[1:]))
    finally:
        loop.close()
        leave(0, [thread for thread in threading.enumerate() if thread.daemon])


if __name__ == "__main__":
    main()
