"""The server: loads models, opens ports, drains on shutdown."""

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

from ox.clock import SYSTEM, Clock
from ox.errors import ArgumentError
from ox.remote import local_copies
from ox.serve.access import Guard
from ox.serve.allocator import HeapTrimmer
from ox.serve.config.model_config import ModelConfig
from ox.serve.config.request_limits import RequestLimits
from ox.serve.config.server_config import ServerConfig
from ox.serve.config.trusted_proxies import TrustedProxies
from ox.serve.protocol.rest.admission import Admission
from ox.serve.protocol.rest.router import Router
from ox.serve.protocol.rest.routes import ROUTES
from ox.serve.protocol.rest.target import path_segments
from ox.serve.protocol.text.response_store import MEMORY
from ox.serve.repository.layout import Layout
from ox.serve.repository.model import Model
from ox.serve.repository.model_manager import ModelManager
from ox.serve.repository.repository import Repository
from ox.serve.runtime.memory import Trimmer, bytes_allocated, shrink
from ox.serve.service import Service
from ox.serve.transport.http import ListenerState
from ox.serve.transport.http.asgi import AsgiApplication
from ox.serve.transport.http.cors import Cors
from ox.serve.transport.listen import Listener, listen
from ox.serve.transport.sockets import bind
from ox.serve.transport.unix_socket import UnixSocket

if TYPE_CHECKING:
    from ox.serve.protocol.grpc.grpc_server import GrpcServer


class Server:
    """A server for ONNX models. `start` and `stop` run on an event loop; `with server:` runs both in a thread.

    Args:
        paths: ONNX files (model name: file name without .onnx), folders of models, and addresses of either, which are
            downloaded: ``s3://``, ``gs://``, ``hf://``, ``mlflow:``.
        options: settings of the models.
        limits: limits on requests and clients.
        service: creates the handler of all calls except inference; worker processes use their own.
        wait: load the models now; otherwise `start` begins to load them, and `loaded` waits for them.
        show: called with progress messages of slow loads, from any thread; default: warnings in the log.
        clock: by which it waits, limits and measures.
        settings: the fields of `ServerConfig`: host, port (0: a free port, see `port`), grpc, ...

    Raises:
        LoadError, DeviceError: a file in `paths`, or all models of the folders, cannot be served.
        ArgumentError: two models have the same name, or an option is out of range.
    """

    def __init__(
        self,
        paths: Sequence[str | Path],
        *,
        options: ModelConfig | None = None,
        limits: RequestLimits | None = None,
        service: Callable[[Repository, RequestLimits, Clock], Service] = Service,
        wait: bool = True,
        show: Callable[[str], None] | None = None,
        clock: Clock = SYSTEM,
        **settings: Any,
    ) -> None:
        if not paths:
            raise ArgumentError("no model to serve", hint="ox serve model.onnx")
        self.settings = ServerConfig(**settings)
        layout = Layout(local_copies(paths, show), self.settings.name)
        self.host, self.port = self.settings.host, self.settings.port
        self.inherited: socket.socket | None = None  # a Unix domain socket created by another process
        self.responses_path = MEMORY  # in several processes, the file of stored responses that they share
        if self.settings.root_path and ROUTES.begins(path_segments(self.settings.root_path.encode())):
            raise ArgumentError(
                "the root path is one of the server's own paths",
                where="--root-path",
                got=self.settings.root_path,
                hint=f"/models{self.settings.root_path}",
            )
        self._unix: UnixSocket | None = None
        self._listeners: list[Listener] = []
        self.limits, self.clock = limits or RequestLimits(), clock
        config = self.settings
        self.guard = Guard(config.keys, config.rate, config.manage, config.workers, clock=clock)
        self._tls = config.tls(clock)
        repository = Repository()
        repository.hide_names, repository.strict = config.keys is not None, config.strict
        self.model_manager = ModelManager(
            repository,
            layout,
            options or ModelConfig(),
            self.limits,
            watch=config.watch,
            workers=config.workers,
            show=show,
            clock=clock,
        )
        self.model_manager.open(wait)
        self.service = service(repository, self.limits, clock)
        self.service.model_manager = self.model_manager
        self.service.telemetry.reloads = self.model_manager.loads
        self._router = Router(self.service, self.limits, self.settings.json_nan)
        self._router.text.guard = self.guard
        self._grpc_server: GrpcServer | None = None
        self._thread: threading.Thread | None = None
        self._trimmer = Trimmer(bytes_allocated, shrink, clock)

    @property
    def grpc_port(self) -> int | None:
        """The port of gRPC; None without gRPC."""
        return None if self._grpc_server is None else self._grpc_server.port

    @property
    def models(self) -> list[Model]:
        """The models that accept requests now."""
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
        """The number of responses by HTTP status."""
        return self._listener_state.replies

    @property
    def answers(self) -> int:
        """The number of responses over HTTP and gRPC."""
        if not self._listeners:
            return 0
        return sum(self.replies.values()) + (0 if self._grpc_server is None else sum(self._grpc_server.replies))

    async def loaded(self) -> None:
        """Waits until all models found at the start are ready or have failed.

        Raises:
            LoadError, DeviceError: a file in `paths`, or all models of the folders, cannot be served.
        """
        await self.model_manager.loaded()

    async def start(self) -> None:
        """Listens, and accepts requests for the loaded models.

        Raises:
            ServeError: the server cannot bind to the address.
        """
        config = self.settings
        cors = Cors(config.allow_origin) if config.allow_origin else None
        self._listener_state = ListenerState(
            self._router,
            self.limits,
            response_memory=self.model_manager.answers,
            cors=cors,
            root_path=config.root_path.encode(),
            proxies=TrustedProxies(config.forwarded_allow_ips) if config.forwarded_allow_ips else None,
            clock=self.clock,
        )
        self._router.attach(self._listener_state)
        self._router.text.responses_path = self.responses_path
        self._heap = HeapTrimmer(self._listener_state.loop, self.model_manager.answers)
        self.service.telemetry.open(
            log=config.log, level=config.log_level, access=config.access_log, trace=config.trace
        )
        admission = Admission(self.guard, cors)
        if self.guard.open:  # everybody may run inference, so only other calls are checked
            self._router.admission = admission
        else:
            self._listener_state.admit = admission
        try:
            await self._listen()
            if self.settings.grpc != "off":
                from ox.serve.protocol.grpc.grpc_server import GrpcServer

                self._grpc_server = GrpcServer(self.service, self.limits, self.guard, self.settings)
                await self._grpc_server.start(self._listener_state, self.host, self.port)
        except BaseException:
            self._close()
            raise
        self.model_manager.start()
        self._trimmer.start()

    def asgi(self) -> AsgiApplication:
        """The started server as an ASGI application, for this event loop."""
        return AsgiApplication(self._listener_state)

    async def _listen(self) -> None:
        """Opens the TCP port and the Unix domain socket that the settings name."""
        self._listeners = []
        proxy_protocol = self.limits if self.settings.proxy_protocol else None
        if self.port is not None:
            sockets = bind(self.host, self.port, share=self.settings.workers > 1)
            listener = await listen(self._listener_state, sockets, tls=self._tls, proxy_protocol=proxy_protocol)
            self._listeners.append(listener)
            self.port = self._listeners[0].port
        if self.settings.uds is not None:
            sock = self.inherited
            if sock is None:
                self._unix = UnixSocket(str(self.settings.uds))
                sock = self._unix.socket
            self._listeners.append(await listen(self._listener_state, [sock], proxy_protocol=proxy_protocol))

    def _close(self) -> None:
        """Stops accepting connections."""
        if self._unix is not None:
            self._unix.remove()
        for listener in self._listeners:
            listener.close()

    async def model_lines(self) -> list[str]:
        """One line per model that is ready."""
        return [model.describe() for model in self.models]

    def greeting(self) -> list[str]:
        """The lines printed when the server is ready: one per model, then the address."""
        warm = 1000 * sum(model.warm_s for model in self.models)
        protocols = "V2 protocol"
        if any(model.text is not None for model in self.models):
            protocols += " · the APIs of OpenAI at /v1, of Anthropic and Ollama at /"
        if self.grpc_port not in (None, self.port):
            protocols += f" · gRPC on port {self.grpc_port}"
        if self.settings.uds is not None and self.port is not None:
            protocols += f" · unix:{self.settings.uds}"
        where = f"ready in {warm:.0f} ms · {self.url} · {protocols} · metrics /metrics · Ctrl-C stops the server"
        warnings = [text for text in (self.settings.exposed(), self.guard.locked()) if text is not None]
        models = [model.describe() for model in self.models]
        if not models:
            folders = ", ".join(map(str, self.model_manager.layout.folders))
            models = [f"warning: there is no model in {folders} yet; NAME/1/model.onnx is loaded when it appears"]
        return [*models, *warnings, where]

    async def stop(self) -> None:
        """Stops accepting requests, answers the accepted ones, then closes."""
        self.service.draining = True
        self.model_manager.cancel()
        self._close()
        if not self._listeners:  # stopped before it listened
            return
        await asyncio.gather(
            self._listener_state.drain(), *([] if self._grpc_server is None else [self._grpc_server.drain()])
        )
        self.model_manager.stop()
        self.service.regions.close()
        self._router.text.close()
        self._trimmer.stop()
        self._heap.close()
        await self.service.telemetry.close()

    def __enter__(self) -> Server:
        started: Future[None] = Future()
        self._loop = self.clock.new_event_loop()
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
