"""gRPC on grpcio's asyncio server: `ox serve --grpc grpcio`.

It runs on the server's event loop and passes bytes: the methods parse messages, as with ox's own framing.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from ox.clock import Clock
from ox.errors import DeviceError
from ox.installation import install_command
from ox.serve.config.request_limits import RequestLimits
from ox.serve.response_memory import LARGE, Body, ResponseMemory
from ox.serve.transport.address import bind_error
from ox.serve.transport.grpc.rpc import CallLogger, Method, StatusCode

try:
    import grpc
except ImportError as error:
    raise DeviceError("grpcio is not installed", hint=f"{install_command('grpc')}, or --grpc own") from error

MAX_MS = 2**31 - 1  # grpc-core takes no larger numbers
MAX_UNSENT = 64  # responses of one stream that the client has not read


class GrpcioTransport:
    """A gRPC server on a separate port.

    Args:
        methods: the methods by their paths.
        limits: message sizes and the drain timeout.
        log_call: called after each call.
        response_memory: counts large responses in grpc-core.
        client: returns the client's address of a call from the peer's and its metadata, see `ListenerState.client`.
        clock: of the requests; deadlines are grpc-core's.
    """

    def __init__(
        self,
        methods: Mapping[bytes, Method],
        limits: RequestLimits,
        log_call: CallLogger | None = None,
        response_memory: ResponseMemory | None = None,
        *,
        client: Callable[[str, Mapping[bytes, bytes]], str] = lambda peer, _: peer,
        clock: Clock,
    ) -> None:
        self.now, self.client = clock.now, client
        self.response_memory = response_memory or ResponseMemory(limits.unread, clock)
        self.replies: list[int] = [0] * len(StatusCode)  # responses by status code
        self._handlers = {path.decode(): _handler(method, self) for path, method in methods.items()}
        self._limits, self._log_call = limits, log_call

    async def start(self, host: str, port: int, tls: Any = None, share: bool = False) -> int:
        """Listens, and returns the port.

        Args:
            host, port: the address; port 0 chooses a free port.
            tls: from `credentials`; None for plain text.
            share: set SO_REUSEPORT, for several worker processes.

        Raises:
            ServeError: the server cannot bind to the address.
        """
        limits = self._limits
        options = [
            ("grpc.max_receive_message_length", limits.body),
            ("grpc.max_send_message_length", -1),  # the response writer checks the limit
            ("grpc.max_metadata_size", limits.header_bytes),
            ("grpc.max_concurrent_streams", limits.streams),
            ("grpc.so_reuseport", int(share)),
            *keepalive_options(limits),
        ]
        self._server = grpc.aio.server(handlers=[_MethodHandlers(self._handlers)], options=options)
        where = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        try:
            if tls is None:
                port = self._server.add_insecure_port(where)
            else:
                port = self._server.add_secure_port(where, tls)
        except RuntimeError as error:
            await self._server.stop(None)
            raise bind_error(host, port, error) from error
        await self._server.start()
        return port

    def record_call(self, rpc: _Rpc, path: bytes, code: int) -> None:
        self.replies[code] += 1
        if self._log_call is not None:
            self._log_call(path, rpc.metadata, code, rpc.received_at, rpc.peer)

    async def drain(self) -> None:
        """Refuses new calls and waits for the running ones, up to `limits.drain_s`."""
        await self._server.stop(self._limits.drain_s)


def keepalive_options(limits: RequestLimits) -> list[tuple[str, int]]:
    """The options of grpc-core that treat idle connections and pings as ox's own HTTP/2 does.

    By default grpc-core ends the connection of a client that pings more often than every five minutes while it waits
    (too_many_pings), keeps idle connections for ever, and notices after two hours that a client has gone.
    """
    idle, write, request = (min(int(1000 * s), MAX_MS) for s in (limits.idle_s, limits.write_s, limits.request_s))
    return [
        ("grpc.max_connection_idle_ms", idle),  # without calls
        ("grpc.keepalive_time_ms", idle),  # with calls: a ping
        ("grpc.keepalive_timeout_ms", write),  # to answer it
        ("grpc.keepalive_permit_without_calls", 1),  # for the pings of clients, too
        ("grpc.http2.min_ping_interval_without_data_ms", 2),
        ("grpc.http2.max_ping_strikes", 2000),  # pings within that interval, before it is a flood
        ("grpc.http2.max_pings_without_data", 0),  # of the server: any number
        ("grpc.server_handshake_timeout_ms", request),
    ]


def credentials(cert: str | Path, key: str | Path, client_ca: str | Path | None = None) -> Any:
    """TLS credentials for `GrpcioTransport.start`; `ox.serve.access.tls` has checked the same files before."""
    authorities = None if client_ca is None else Path(client_ca).read_bytes()
    pair = Path(key).read_bytes(), Path(cert).read_bytes()
    return grpc.ssl_server_credentials([pair], authorities, require_client_auth=client_ca is not None)


class _MethodHandlers(grpc.GenericRpcHandler):  # type: ignore[misc]
    """Finds the handler of a call."""

    def __init__(self, handlers: dict[str, Any]) -> None:
        self._handlers = handlers

    def service(self, call: Any) -> Any:
        return self._handlers.get(call.method)


class _Rpc:
    """Implements `ox.serve.transport.grpc.rpc.Rpc`. Unsent messages wait in `unsent`; None ends them."""

    def __init__(self, context: Any, path: bytes, server: GrpcioTransport) -> None:
        self._path, self._server = path, server
        self.metadata: Mapping[bytes, bytes] = metadata_of(context)
        self.received_at = server.now()
        left = context.time_remaining()
        self.deadline = None if left is None else self.received_at + left
        self.peer = server.client(client_address(context.peer()), self.metadata)
        self.on_cancel: Callable[[], None] | None = None
        self.on_half_close: Callable[[], None] | None = None
        self.on_flow: Callable[[bool], None] | None = None
        self.state: object = None
        self.unsent: asyncio.Queue[bytes | None] = asyncio.Queue()
        self.failure: tuple[int, str] | None = None
        self.ready = asyncio.Event()  # ready for the next message
        self.ready.set()
        self._paused = self.finished = self._reads_slowly = False
        self._charged_bytes = 0  # bytes of large responses not yet sent
        context.add_done_callback(lambda _: self.release(self._charged_bytes))

    def send(self, message: Body) -> None:
        if not self.finished:
            data = message if isinstance(message, bytes) else message.join()  # grpcio takes bytes only
            if len(data) >= LARGE:
                self._charged_bytes += len(data)
                self._server.response_memory.charge(len(data))
            self.unsent.put_nowait(data)
            if self.unsent.qsize() >= MAX_UNSENT:
                self.ready.clear()
                self._set_flow(True)

    def finish(self) -> None:
        if not self.finished:
            self.finished = True
            self._server.record_call(self, self._path, StatusCode.OK if self.failure is None else self.failure[0])
            self.unsent.put_nowait(None)

    def fail(self, code: int, text: str) -> None:
        if not self.finished:
            self.failure = code, text
            self.finish()

    def pause(self) -> None:
        self._paused = True
        self.ready.clear()

    def resume(self) -> None:
        self._paused = False
        self.update_ready()

    def release(self, size: int) -> None:
        """Releases memory of messages that were sent or dropped."""
        if self._charged_bytes and size >= LARGE:
            self._charged_bytes -= size
            self._server.response_memory.release(size)

    def update_ready(self) -> None:
        """Allows the next message unless the method has paused or the client reads too slowly."""
        if self.unsent.qsize() < MAX_UNSENT:
            self._set_flow(False)
            if not self._paused:
                self.ready.set()

    def _set_flow(self, slow: bool) -> None:
        if slow is not self._reads_slowly:
            self._reads_slowly = slow
            if self.on_flow is not None:
                self.on_flow(slow)

    def cancel(self) -> None:
        """The client has disconnected or cancelled the call."""
        if not self.finished:
            self.finished = True
            if self.on_cancel is not None:
                self.on_cancel()


def _handler(method: Method, server: GrpcioTransport) -> Any:
    if method.streaming:
        return grpc.stream_stream_rpc_method_handler(_streaming(method, server))
    return grpc.unary_unary_rpc_method_handler(_unary(method, server))


def _unary(method: Method, server: GrpcioTransport) -> Callable[[bytes, Any], Awaitable[bytes]]:
    async def answer(body: bytes, context: Any) -> bytes:
        rpc = _Rpc(context, method.path, server)
        try:
            method.call(body, rpc)
            message = await rpc.unsent.get()
        finally:
            rpc.cancel()  # does nothing after the end
        if message is None:
            assert rpc.failure is not None
            await context.abort(_status_code(rpc.failure[0]), rpc.failure[1])
        return message or b""

    return answer


def _streaming(method: Method, server: GrpcioTransport) -> Callable[[AsyncIterator[bytes], Any], AsyncIterator[bytes]]:
    async def answer(bodies: AsyncIterator[bytes], context: Any) -> AsyncIterator[bytes]:
        rpc = _Rpc(context, method.path, server)
        reader = asyncio.ensure_future(_read_messages(method, bodies, rpc))
        try:
            while (message := await rpc.unsent.get()) is not None:
                rpc.update_ready()
                yield message
                rpc.release(len(message))
        finally:
            reader.cancel()
            rpc.cancel()
        if rpc.failure is not None:
            await context.abort(_status_code(rpc.failure[0]), rpc.failure[1])

    return answer


async def _read_messages(method: Method, bodies: AsyncIterator[bytes], rpc: _Rpc) -> None:
    received_any = False
    async for body in bodies:
        received_any = True
        method.call(body, rpc)
        await rpc.ready.wait()
        if rpc.finished:
            return
    if not received_any:
        rpc.finish()
    elif rpc.on_half_close is not None:
        rpc.on_half_close()


def metadata_of(context: Any) -> dict[bytes, bytes]:
    metadata: dict[bytes, bytes] = {}
    for name, value in context.invocation_metadata():
        key, text = name.encode(), value.encode("latin-1") if isinstance(value, str) else value
        metadata[key] = metadata[key] + b", " + text if key in metadata else text
    return metadata


def client_address(peer: str) -> str:
    """The IP address in a peer name of grpc-core: "ipv4:127.0.0.1:50051" or "ipv6:%5B::1%5D:50051"."""
    _, _, rest = peer.partition(":")
    return unquote(rest).rpartition(":")[0].strip("[]")


STATUS_CODES = {code.value[0]: code for code in grpc.StatusCode}


def _status_code(number: int) -> Any:
    return STATUS_CODES[number]
