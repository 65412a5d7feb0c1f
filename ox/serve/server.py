"""The server: loads models, opens its ports, drains when it is told to stop."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from ox.errors import ArgumentError
from ox.serve.access import Guard
from ox.serve.allocator import HeapTrimmer
from ox.serve.engine.memory import Trimmer, shrink, taken
from ox.serve.http import Front
from ox.serve.limits import Limits
from ox.serve.listen import Listener, listen
from ox.serve.loop import new_loop
from ox.serve.options import Options
from ox.serve.repository.keeper import Keeper
from ox.serve.repository.layout import Layout
from ox.serve.repository.model import Model
from ox.serve.repository.repository import Repository
from ox.serve.rest.admission import Admission
from ox.serve.rest.router import Router
from ox.serve.service import Service
from ox.serve.settings import Settings
from ox.serve.sockets import bind
from ox.serve.unix_socket import UnixSocket

if TYPE_CHECKING:
    from ox.serve.grpc.door import Door


class Server:
    """Models behind a port. `start` and `stop` run on an event loop; `with server:` runs both in a thread of its own.

    Args:
        paths: ONNX files, each served under its stem, and folders of models (`ox.serve.repository.layout`).
        options: how models run.
        limits: what clients may do.
        service: makes what answers all calls but inference; a worker among several brings its own.
        wait: whether the models are loaded now, which takes its time; else `start` begins to load them, and `loaded`
            waits for them.
        show: is told of loads that take long, from any thread; without it they are warnings in the log.
        settings: the fields of `Settings`: host, port (0 takes a free one, which `port` then names), grpc, ...

    Raises:
        LoadError, DeviceError: a file that was named, or everything in the folders, cannot be served.
        ArgumentError: two files have one name, or an option is out of range.
    """

    def __init__(
        self,
        paths: Sequence[str | Path],
        *,
        options: Options | None = None,
        limits: Limits | None = None,
        service: Callable[[Repository, Limits], Service] = Service,
        wait: bool = True,
        show: Callable[[str], None] | None = None,
        **settings: Any,
    ) -> None:
        if not paths:
            raise ArgumentError("no model to serve", hint="ox serve model.onnx")
        layout = Layout(paths)
        self.settings = Settings(**settings)
        self.host, self.port = self.settings.host, self.settings.port
        self.inherited: socket.socket | None = None  # the Unix domain socket, where another process has made it
        self._unix: UnixSocket | None = None
        self._listeners: list[Listener] = []
        self.limits = limits or Limits()
        self.guard = Guard(self.settings.keys, self.settings.rate, self.settings.manage, self.settings.workers)
        self._tls = self.settings.tls()
        repository = Repository()
        repository.discreet = self.settings.keys is not None
        said = self.settings
        self.keeper = Keeper(
            repository, layout, options or Options(), self.limits, watch=said.watch, workers=said.workers, show=show
        )
        self.keeper.open(wait)
        self.service = service(repository, self.limits)
        self.service.keeper = self.keeper
        self.service.telemetry.reloads = self.keeper.loads
        self._router = Router(self.service, self.limits, self.settings.json_nan)
        self._door: Door | None = None
        self._thread: threading.Thread | None = None
        self._trimmer = Trimmer(taken, shrink)

    @property
    def grpc_port(self) -> int | None:
        """Where gRPC is spoken; None for nowhere."""
        return None if self._door is None else self._door.port

    @property
    def models(self) -> list[Model]:
        """Those that answer now."""
        return self.service.repository.models()

    @property
    def address(self) -> str:
        """Host and port, or the path of a Unix domain socket."""
        if self.port is None:
            return str(self.settings.uds)
        return f"{f'[{self.host}]' if ':' in self.host else self.host}:{self.port}"

    @property
    def url(self) -> str:
        if self.port is None:
            return f"unix:{self.settings.uds}"
        return f"{'http' if self._tls is None else 'https'}://{self.address}"

    @property
    def replies(self) -> Counter[int]:
        """Answers so far, by HTTP status."""
        return self._front.replies

    @property
    def answers(self) -> int:
        """Answers so far."""
        if not self._listeners:
            return 0
        return sum(self.replies.values()) + (0 if self._door is None else sum(self._door.replies))

    async def loaded(self) -> None:
        """Waits until every model that was there at the start runs, or cannot.

        Raises:
            LoadError, DeviceError: a file that was named, or everything in the folders, cannot be served.
        """
        await self.keeper.loaded()

    async def start(self) -> None:
        """Listens, and answers with the models that are loaded.

        Raises:
            ServeError: the address cannot be had.
        """
        self._front = Front(self._router, self.limits, answers=self.keeper.answers)
        self._router.attach(self._front)
        self._heap = HeapTrimmer(self._front.loop, self.keeper.answers)
        said = self.settings
        self.service.telemetry.open(log=said.log, level=said.log_level, access=said.access_log, trace=said.trace)
        admission = Admission(self.guard)
        if self.guard.open:  # inference goes ahead, so only what is rare is asked about
            self._router.admission = admission
        else:
            self._front.admit = admission
        try:
            await self._listen()
            if self.settings.grpc != "off":
                from ox.serve.grpc.door import Door

                self._door = Door(self.service, self.limits, self.guard, self.settings)
                await self._door.start(self._front, self.host, self.port)
        except BaseException:
            self._close()
            raise
        self.keeper.start()
        self._trimmer.start()

    async def _listen(self) -> None:
        """Opens the port and the Unix domain socket, as far as they are wanted."""
        self._listeners = []
        if self.port is not None:
            sockets = bind(self.host, self.port, share=self.settings.workers > 1)
            self._listeners.append(await listen(self._front, sockets, tls=self._tls))
            self.port = self._listeners[0].port
        if self.settings.uds is not None:
            made = self.inherited
            if made is None:
                self._unix = UnixSocket(str(self.settings.uds))
                made = self._unix.socket
            self._listeners.append(await listen(self._front, [made]))

    def _close(self) -> None:
        """Nobody new gets in."""
        if self._unix is not None:
            self._unix.remove()
        for listener in self._listeners:
            listener.close()

    async def model_lines(self) -> list[str]:
        """A line for each model that answers now."""
        return [model.describe() for model in self.models]

    def greeting(self) -> list[str]:
        """What a user sees once the server is ready: a line a model, and where to ask."""
        warm = 1000 * sum(model.warm_s for model in self.models)
        spoken = "V2 protocol"
        if self.grpc_port not in (None, self.port):
            spoken += f" · gRPC on port {self.grpc_port}"
        if self.settings.uds is not None and self.port is not None:
            spoken += f" · unix:{self.settings.uds}"
        where = f"warm in {warm:.0f} ms · {self.url} · {spoken} · metrics /metrics · Ctrl-C drains and stops"
        warnings = [said for said in (self.settings.exposed(), self.guard.locked()) if said is not None]
        models = [model.describe() for model in self.models]
        if not models:
            folders = ", ".join(map(str, self.keeper.layout.folders))
            models = [f"warning: there is no model in {folders} yet; NAME/1/model.onnx is taken once it appears"]
        return [*models, *warnings, where]

    async def stop(self) -> None:
        """Accepts nothing new, finishes what was accepted, then closes."""
        self.service.draining = True
        self.keeper.cancel()
        self._close()
        if not self._listeners:  # it was told to stop before it listened
            return
        await asyncio.gather(self._front.drain(), *([] if self._door is None else [self._door.drain()]))
        self.keeper.stop()
        self._trimmer.stop()
        self._heap.close()
        await self.service.telemetry.close()

    def __enter__(self) -> Server:
        started: Future[None] = Future()
        self._thread = threading.Thread(target=self._run, args=(started,), name="ox-server", daemon=True)
        self._thread.start()
        started.result()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._loop.call_soon_threadsafe(self._stopping.set)
        if self._thread is not None:
            self._thread.join()

    def _run(self, started: Future[None]) -> None:
        self._loop = new_loop()
        self._stopping = asyncio.Event()

        async def body() -> None:
            try:
                await self.start()
            except Exception as error:
                started.set_exception(error)
                return
            started.set_result(None)
            await self._stopping.wait()
            await self.stop()

        try:
            self._loop.run_until_complete(body())
        finally:
            self._loop.close()
