"""``python -m ox.serve.workers.worker FD [UNIX]``: one of several processes behind the same ports.

It gets its orders over the socket FD; UNIX is a Unix domain socket that all of them listen on. When the supervisor is
gone, however that came, the worker drains and ends.
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

from ox.errors import OxError
from ox.serve.abandoned import leave
from ox.serve.limits import Limits
from ox.serve.loop import new_loop, settle
from ox.serve.repository.repository import Repository
from ox.serve.repository.thread import in_thread
from ox.serve.server import Server
from ox.serve.service import Service
from ox.serve.workers.link import LONGEST, Link
from ox.serve.workers.orders import Orders
from ox.serve.workers.shared import SharedService

log = logging.getLogger("ox.serve")


async def work(control: socket.socket, inherited: socket.socket | None = None) -> None:
    """Serves until the supervisor says stop or is gone."""
    stopping = asyncio.Event()
    server: Server | None = None
    service: SharedService | None = None
    listening = False

    def among_several(repository: Repository, limits: Limits) -> Service:
        nonlocal service
        service = SharedService(repository, limits, link)
        return service

    def show(line: str) -> None:
        with suppress(RuntimeError):  # the loop has been closed
            loop.call_soon_threadsafe(link.tell, "show", {"line": line})

    def made(orders: Orders, wait: bool) -> Server:
        server = Server(
            orders.paths,
            options=orders.options,
            limits=orders.limits,
            service=among_several,
            wait=wait,
            show=show,
            **asdict(orders.settings),
        )
        server.inherited = inherited
        settle()
        return server

    async def answer(call: str, arguments: dict[str, Any]) -> Any:
        nonlocal server, listening
        if call == "begin":
            begin = partial(made, Orders.from_json(arguments["orders"]), arguments["wait"])
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
            return server.keeper.give_up(arguments["name"])
        if call == "listen":
            for past, its in arguments["journal"]:
                try:
                    await service.here(past, its)
                except OxError as error:  # what was there then may be gone: a region, a model's files
                    log.warning("a new worker cannot follow the call '%s': %s", past, error.one_line())
            await server.start()
            listening = True
            return None
        if call == "model_lines":
            return await server.model_lines()
        if call == "loaded":
            await server.loaded()
            settle()
            return server.greeting()
        return await service.here(call, arguments)

    loop = asyncio.get_running_loop()
    reader, writer = await asyncio.open_unix_connection(sock=control, limit=LONGEST)
    link = Link(reader, writer, answer)
    reading = asyncio.ensure_future(link.run())
    stopped = asyncio.ensure_future(stopping.wait())
    await asyncio.wait((reading, stopped), return_when=asyncio.FIRST_COMPLETED)
    if server is not None and listening:
        await server.stop()
    stopped.cancel()
    link.close()
    await reading


def main() -> None:
    # Ctrl-C reaches every process of the terminal; the supervisor decides what it means.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    loop = new_loop()
    try:
        loop.run_until_complete(work(*(socket.socket(fileno=int(number)) for number in sys.argv[1:])))
    finally:
        loop.close()
        leave(0, [thread for thread in threading.enumerate() if thread.daemon])


if __name__ == "__main__":
    main()
