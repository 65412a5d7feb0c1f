"""`ox.serve.serve`: a server, or several that share the ports, until somebody says stop."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol

from ox.serve.limits import Limits
from ox.serve.loop import new_loop, settle
from ox.serve.options import Options
from ox.serve.server import Server
from ox.serve.settings import Settings


class Running(Protocol):
    """What can be started and stopped."""

    async def start(self) -> None: ...

    async def loaded(self) -> None: ...

    async def stop(self) -> None: ...

    async def model_lines(self) -> list[str]: ...

    def greeting(self) -> list[str]: ...

    @property
    def answers(self) -> int: ...

    @property
    def address(self) -> str: ...


QUICK_S = 1.0


def serve(
    paths: Sequence[str | Path],
    *,
    port: int | None = 8000,
    options: Options | None = None,
    limits: Limits | None = None,
    show: Callable[[str], None] = print,
    **settings: Any,
) -> None:
    """Serves ONNX files until SIGINT or SIGTERM, then drains. Blocks; what it says goes to `show`.

    The parameters are those of `Server`.

    Raises:
        LoadError, DeviceError, ArgumentError: see `Server`.
        ServeError: the address cannot be had.
    """
    known = Settings(port=port, **settings)
    running: Running
    if known.workers > 1:
        from ox.serve.workers.orders import Orders
        from ox.serve.workers.supervisor import Supervisor

        orders = Orders([str(path) for path in paths], options or Options(), limits or Limits(), known)
        running = Supervisor(orders, show)
    else:
        running = Server(paths, options=options, limits=limits, wait=False, show=show, port=port, **settings)
        settle()
    loop = new_loop()
    try:
        loop.run_until_complete(_until_signalled(running, show))
    finally:
        loop.close()


async def _until_signalled(running: Running, show: Callable[[str], None]) -> None:
    loop = asyncio.get_running_loop()
    stopping = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stopping.set)
    stopped = asyncio.ensure_future(stopping.wait())
    starting = asyncio.ensure_future(_start(running, show))
    await asyncio.wait((starting, stopped), return_when=asyncio.FIRST_COMPLETED)
    if starting.done():
        starting.result()
        await stopped
    else:
        starting.cancel()
        await asyncio.wait((starting,))
    show("draining")
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.remove_signal_handler(number)  # a second one stops at once
    await running.stop()
    show(f"stopped after {running.answers:,} answers")


async def _start(running: Running, show: Callable[[str], None]) -> None:
    """Starts; what loads quickly is there before anybody is told of the address, and waits for nothing slower."""
    shown: list[str] = []
    await running.start()
    loading = asyncio.ensure_future(running.loaded())
    try:
        while not (await asyncio.wait((loading,), timeout=QUICK_S))[0]:
            if not shown:
                shown.append(
                    f"listening on {running.address} while models are loaded; ready once each of them is, or cannot be"
                )
                show(shown[0])
            for line in await running.model_lines():
                if line not in shown:
                    shown.append(line)
                    show(line)
        await loading
    except asyncio.CancelledError:
        loading.cancel()
        raise
    except Exception:
        await running.stop()
        raise
    settle()
    for line in running.greeting():
        if line not in shown:
            show(line)
