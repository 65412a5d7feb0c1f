"""`ox.serve.serve`: runs a server, or several worker processes, until SIGINT or SIGTERM."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol

from ox.clock import SYSTEM
from ox.remote import local_copies
from ox.serve.config.model_config import ModelConfig
from ox.serve.config.request_limits import RequestLimits
from ox.serve.config.server_config import ServerConfig
from ox.serve.server import Server
from ox.serve.transport.event_loop import run, tune_process


class RunnableServer(Protocol):
    """The interface of `Server` and of the supervisor of worker processes."""

    async def start(self) -> None: ...

    async def loaded(self) -> None: ...

    async def stop(self) -> None: ...

    async def model_lines(self) -> list[str]: ...

    def greeting(self) -> list[str]: ...

    @property
    def answers(self) -> int: ...

    @property
    def address(self) -> str: ...


GREETING_WAIT_S = 1.0


def serve(
    paths: Sequence[str | Path],
    *,
    port: int | None = 8000,
    options: ModelConfig | None = None,
    limits: RequestLimits | None = None,
    show: Callable[[str], None] = print,
    **settings: Any,
) -> None:
    """Serves ONNX files until SIGINT or SIGTERM, then answers the accepted requests. Blocks; messages go to `show`.

    The parameters are those of `Server`.

    Raises:
        LoadError, DeviceError, ArgumentError: see `Server`.
        ServeError: the server cannot listen on the address.
    """
    server_config = ServerConfig(port=port, **settings)
    paths = local_copies(paths, show)
    server: RunnableServer
    if server_config.workers > 1:
        from ox.serve.workers.supervisor import Supervisor
        from ox.serve.workers.worker_config import WorkerConfig

        worker_config = WorkerConfig(
            [str(path) for path in paths], options or ModelConfig(), limits or RequestLimits(), server_config
        )
        server = Supervisor(worker_config, show)
    else:
        server = Server(paths, options=options, limits=limits, wait=False, show=show, port=port, **settings)
        tune_process()
    run(SYSTEM.new_event_loop(), _run_until_signal(server, show))


async def _run_until_signal(server: RunnableServer, show: Callable[[str], None]) -> None:
    loop = asyncio.get_running_loop()
    stopped = loop.create_future()

    def stop() -> None:
        if not stopped.done():
            stopped.set_result(None)

    forget = _at_signals(loop, stop)
    starting = asyncio.ensure_future(_start(server, show))
    await asyncio.wait((starting, stopped), return_when=asyncio.FIRST_COMPLETED)
    if starting.done():
        starting.result()
        await stopped
    else:
        starting.cancel()
        await asyncio.wait((starting,))
    show("draining")
    forget()  # a second signal ends the process at once
    await server.stop()
    show(f"stopped after {server.answers:,} answers")


def _at_signals(loop: asyncio.AbstractEventLoop, stop: Callable[[], None]) -> Callable[[], None]:
    """Calls `stop` at SIGINT or SIGTERM. Returns what gives the signals their own effect back."""
    numbers = (signal.SIGINT, signal.SIGTERM)
    by_loop = True
    try:
        for number in numbers:
            loop.add_signal_handler(number, stop)
    except NotImplementedError:  # a loop of Windows
        by_loop = False
        for number in numbers:
            signal.signal(number, lambda *_: loop.call_soon_threadsafe(stop))

    def forget() -> None:
        for number in numbers:
            if by_loop:
                loop.remove_signal_handler(number)
            else:
                signal.signal(number, signal.SIG_DFL)

    return forget


async def _start(server: RunnableServer, show: Callable[[str], None]) -> None:
    """Starts the server; models that load quickly are ready before the address is printed."""
    shown: list[str] = []
    await server.start()
    loading = asyncio.ensure_future(server.loaded())
    try:
        while not (await asyncio.wait((loading,), timeout=GREETING_WAIT_S))[0]:
            if not shown:
                shown.append(f"listening on {server.address} while models are loading")
                show(shown[0])
            for line in await server.model_lines():
                if line not in shown:
                    shown.append(line)
                    show(line)
        await loading
    except asyncio.CancelledError:
        loading.cancel()
        raise
    except Exception:
        await server.stop()
        raise
    tune_process()
    for line in server.greeting():
        if line not in shown:
            show(line)
