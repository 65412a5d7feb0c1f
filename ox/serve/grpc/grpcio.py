"""The same calls on grpcio's asyncio server: `ox serve --grpc grpcio`, for whoever trusts grpc-core's framing more.

It runs on the server's event loop, with bytes in and out: messages are read by the methods, as with our own framing.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from pathlib import Path
from time import perf_counter
from typing import Any
from urllib.parse import unquote

from ox.errors import DeviceError
from ox.serve.address import unavailable
from ox.serve.answer_memory import LARGE, AnswerMemory, Body
from ox.serve.grpc.rpc import Code, Method, Note
from ox.serve.limits import Limits

try:
    import grpc
except ImportError as error:
    raise DeviceError("grpcio is not installed", hint='pip install "ox-onnx[grpc]", or --grpc own') from error

MOST_UNSENT = 64  # answers of one stream that wait for the client to take them


class Grpcio:
    """A gRPC server on a port of its own.

    Args:
        methods: the calls by their paths.
        limits: sizes, and how long draining may take.
        note: is told of each call that was answered.
        answers: counts what grpc-core holds of large answers.
    """

    def __init__(
        self,
        methods: Mapping[bytes, Method],
        limits: Limits,
        note: Note | None = None,
        answers: AnswerMemory | None = None,
    ) -> None:
        self.answers = answers or AnswerMemory(limits.unread)
        self.replies: list[int] = [0] * len(Code)  # answers by their code
        self._handlers = {path.decode(): _handler(method, self) for path, method in methods.items()}
        self._limits, self._note = limits, note

    async def start(self, host: str, port: int, tls: Any = None, share: bool = False) -> int:
        """Listens; gives the port back.

        Args:
            host, port: where; port 0 takes a free one.
            tls: from `credentials`; None for plain text.
            share: whether other processes listen on the same port.

        Raises:
            ServeError: the address cannot be had.
        """
        limits = self._limits
        options = [
            ("grpc.max_receive_message_length", limits.body),
            ("grpc.max_send_message_length", -1),  # answers are held to their limit when they are written
            ("grpc.max_metadata_size", limits.header_bytes),
            ("grpc.max_concurrent_streams", limits.streams),
            ("grpc.so_reuseport", int(share)),
        ]
        self._server = grpc.aio.server(handlers=[_Calls(self._handlers)], options=options)
        where = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        try:
            if tls is None:
                port = self._server.add_insecure_port(where)
            else:
                port = self._server.add_secure_port(where, tls)
        except RuntimeError as error:
            await self._server.stop(None)
            raise unavailable(host, port, error) from error
        await self._server.start()
        return port

    def ended(self, rpc: _Rpc, path: bytes, code: int) -> None:
        self.replies[code] += 1
        if self._note is not None:
            self._note(path, rpc.metadata, code, rpc.arrived, rpc.peer)

    async def drain(self) -> None:
        """Takes no new call and finishes those that it took, if they do not take too long."""
        await self._server.stop(self._limits.drain_s)


def credentials(cert: str | Path, key: str | Path, client_ca: str | Path | None = None) -> Any:
    """What `Grpcio.start` speaks TLS with; files as in `ox.serve.access.tls`, which reads them first."""
    authorities = None if client_ca is None else Path(client_ca).read_bytes()
    pair = Path(key).read_bytes(), Path(cert).read_bytes()
    return grpc.ssl_server_credentials([pair], authorities, require_client_auth=client_ca is not None)


class _Calls(grpc.GenericRpcHandler):  # type: ignore[misc]
    """Finds what answers a call."""

    def __init__(self, handlers: dict[str, Any]) -> None:
        self._handlers = handlers

    def service(self, call: Any) -> Any:
        return self._handlers.get(call.method)


class _Rpc:
    """See `ox.serve.grpc.rpc.Rpc`. What is to be sent waits in `unsent`; None ends it."""

    def __init__(self, context: Any, path: bytes, server: Grpcio) -> None:
        self._path, self._server = path, server
        self.metadata: Mapping[bytes, bytes] = _metadata(context)
        self.arrived = perf_counter()
        left = context.time_remaining()
        self.deadline = None if left is None else self.arrived + left
        self.peer = _address(context.peer())
        self.on_abandon: Callable[[], None] | None = None
        self.ended: Callable[[], None] | None = None
        self.state: object = None
        self.unsent: asyncio.Queue[bytes | None] = asyncio.Queue()
        self.failure: tuple[int, str] | None = None
        self.ready = asyncio.Event()  # for another message
        self.ready.set()
        self._held = self.over = False
        self._charged = 0  # bytes of large answers that it was given and has not sent
        context.add_done_callback(lambda _: self.sent(self._charged))

    def send(self, message: Body) -> None:
        if not self.over:
            data = message if isinstance(message, bytes) else message.join()  # nobody here takes pieces
            if len(data) >= LARGE:
                self._charged += len(data)
                self._server.answers.charge(len(data))
            self.unsent.put_nowait(data)
            if self.unsent.qsize() >= MOST_UNSENT:
                self.ready.clear()

    def finish(self) -> None:
        if not self.over:
            self.over = True
            self._server.ended(self, self._path, Code.OK if self.failure is None else self.failure[0])
            self.unsent.put_nowait(None)

    def fail(self, code: int, text: str) -> None:
        if not self.over:
            self.failure = code, text
            self.finish()

    def hold(self) -> None:
        self._held = True
        self.ready.clear()

    def resume(self) -> None:
        self._held = False
        self.taken()

    def sent(self, size: int) -> None:
        """So many bytes have left, or never will."""
        if self._charged and size >= LARGE:
            self._charged -= size
            self._server.answers.release(size)

    def taken(self) -> None:
        """Another message may come, unless the method or the client's slowness is against it."""
        if not self._held and self.unsent.qsize() < MOST_UNSENT:
            self.ready.set()

    def abandon(self) -> None:
        """The client is not there any more."""
        if not self.over:
            self.over = True
            if self.on_abandon is not None:
                self.on_abandon()


def _handler(method: Method, server: Grpcio) -> Any:
    if method.streaming:
        return grpc.stream_stream_rpc_method_handler(_streaming(method, server))
    return grpc.unary_unary_rpc_method_handler(_unary(method, server))


def _unary(method: Method, server: Grpcio) -> Callable[[bytes, Any], Awaitable[bytes]]:
    async def answer(body: bytes, context: Any) -> bytes:
        rpc = _Rpc(context, method.path, server)
        try:
            method.call(body, rpc)
            message = await rpc.unsent.get()
        finally:
            rpc.abandon()  # unless it is over
        if message is None:
            assert rpc.failure is not None
            await context.abort(_code(rpc.failure[0]), rpc.failure[1])
        return message or b""

    return answer


def _streaming(method: Method, server: Grpcio) -> Callable[[AsyncIterator[bytes], Any], AsyncIterator[bytes]]:
    async def answer(bodies: AsyncIterator[bytes], context: Any) -> AsyncIterator[bytes]:
        rpc = _Rpc(context, method.path, server)
        reader = asyncio.ensure_future(_read(method, bodies, rpc))
        try:
            while (message := await rpc.unsent.get()) is not None:
                rpc.taken()
                yield message
                rpc.sent(len(message))
        finally:
            reader.cancel()
            rpc.abandon()
        if rpc.failure is not None:
            await context.abort(_code(rpc.failure[0]), rpc.failure[1])

    return answer


async def _read(method: Method, bodies: AsyncIterator[bytes], rpc: _Rpc) -> None:
    met = False
    async for body in bodies:
        met = True
        method.call(body, rpc)
        await rpc.ready.wait()
        if rpc.over:
            return
    if not met:
        rpc.finish()
    elif rpc.ended is not None:
        rpc.ended()


def _metadata(context: Any) -> dict[bytes, bytes]:
    found: dict[bytes, bytes] = {}
    for name, value in context.invocation_metadata():
        key, text = name.encode(), value.encode("latin-1") if isinstance(value, str) else value
        found[key] = found[key] + b", " + text if key in found else text
    return found


def _address(peer: str) -> str:
    """The client's address in grpc-core's "ipv4:127.0.0.1:50051" or "ipv6:%5B::1%5D:50051"."""
    _, _, rest = peer.partition(":")
    return unquote(rest).rpartition(":")[0].strip("[]")


CODES = {code.value[0]: code for code in grpc.StatusCode}


def _code(number: int) -> Any:
    return CODES[number]
