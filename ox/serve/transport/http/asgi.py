"""The server as an ASGI application, for frameworks that own the ports themselves (ASGI 3.0, HTTP)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from ox.errors import OxError, ServeError
from ox.serve.response_memory import Body, Buffers
from ox.serve.transport.http.exchange import JSON, Exchange
from ox.serve.transport.http.listener_state import ListenerState
from ox.serve.transport.http.response_stream import HIGH_WATER, ResponseStream
from ox.serve.transport.http.root_path import without_root

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]


class AsgiConnection:
    """What an exchange needs of a connection."""

    def __init__(self, listener_state: ListenerState, peer: str) -> None:
        self.listener_state, self.peer = listener_state, peer


class AsgiExchange(Exchange):
    """A request of an ASGI server. `replied` is set when the response is known, or has begun."""

    __slots__ = ("content", "fields", "parts", "replied", "status")

    def __init__(self, connection: AsgiConnection, scope: Scope) -> None:
        query = scope.get("query_string", b"")
        path = scope.get("raw_path") or scope["path"].encode()
        headers: dict[bytes, bytes] = {}
        for name, value in scope["headers"]:
            headers[name] = headers[name] + b"," + value if name in headers else value
        target = path + b"?" + query if query else path
        for root_path in (scope.get("root_path", "").encode(), connection.listener_state.root_path):
            target = without_root(target, root_path)
        super().__init__(connection, scope["method"].encode(), target, headers, b"", True)  # type: ignore[arg-type]
        self.replied = asyncio.Event()
        self.parts: AsgiResponseStream | None = None

    def reply(self, status: int, body: Body = b"", content_type: bytes = JSON, extra: bytes = b"") -> None:
        """Keeps the response for `send`, see `Exchange.reply`."""
        listener_state = self.connection.listener_state
        listener_state.replies[status] += 1
        if listener_state.cors is not None:
            extra += listener_state.cors.headers(self.headers)
        extra += self.extra_headers
        if listener_state.access_log is not None:
            extra += listener_state.access_log.http(self, status, len(body))
        self.fields = _fields(content_type, extra)
        self.fields.append((b"content-length", b"%d" % len(body)))
        if self.method == b"HEAD":
            body = b""
        self.status, self.content = status, body.join() if isinstance(body, Buffers) else body
        self.on_cancel = None
        self.replied.set()

    def stream_response(self, status: int, content_type: bytes, extra: bytes = b"") -> ResponseStream:
        """Begins a response in parts, see `Exchange.stream_response`."""
        cors, access_log = self.connection.listener_state.cors, self.connection.listener_state.access_log
        if cors is not None:
            extra += cors.headers(self.headers)
        extra += self.extra_headers
        if access_log is not None:
            extra += access_log.id_header(self)
        self.status, self.fields = status, _fields(content_type, extra)
        self.parts = AsgiResponseStream(self, status)
        self.replied.set()
        return self.parts

    def cancel_at_eof(self) -> None:
        """The ASGI server decides when a client has disconnected."""

    async def send(self, send: Send) -> None:
        await send({"type": "http.response.start", "status": self.status, "headers": self.fields})
        if self.parts is None:
            await send({"type": "http.response.body", "body": self.content})
        else:
            await self.parts.send(send)


class AsgiResponseStream(ResponseStream):
    """Parts that wait until the ASGI server takes them."""

    __slots__ = ("_changed", "_ended", "_waiting")

    def __init__(self, exchange: AsgiExchange, status: int) -> None:
        super().__init__(exchange, status)
        self._waiting = bytearray()
        self._changed = asyncio.Event()
        self._ended = False

    def write(self, data: bytes) -> None:
        self.bytes_written += len(data)
        self._waiting += data
        self._changed.set()
        if len(self._waiting) > HIGH_WATER:
            self.set_paused(True)

    def end(self) -> None:
        self._ended = True
        self._changed.set()
        self._finish()

    async def send(self, send: Send) -> None:
        """Hands the parts over, each when the last one is taken."""
        more = True
        while more:
            await self._changed.wait()
            self._changed.clear()
            body, more = bytes(self._waiting), not self._ended
            self._waiting.clear()
            await send({"type": "http.response.body", "body": body, "more_body": more})
            self.set_paused(False)


def _fields(content_type: bytes, extra: bytes) -> list[tuple[bytes, bytes]]:
    """The header fields of a response; `extra` holds header lines of HTTP/1.1."""
    fields = [(b"content-type", content_type)]
    for line in extra.split(b"\r\n")[:-1]:
        name, _, value = line.partition(b":")
        fields.append((name.strip().lower(), value.strip()))
    return fields


class AsgiApplication:
    """Handles requests as the listener does whose state this is, on its event loop."""

    def __init__(self, listener_state: ListenerState) -> None:
        self.listener_state = listener_state

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await _lifespan(receive, send)
            return
        if scope["type"] != "http":
            raise ValueError(f"ox answers HTTP, and no {scope['type']}")
        client = scope.get("client") or ("",)
        exchange = AsgiExchange(AsgiConnection(self.listener_state, str(client[0])), scope)
        try:
            self._admit(exchange)
            if not await self._read(exchange, receive):
                return
            self.listener_state.handle(exchange)
        except OxError as error:
            exchange.send_error(error)
        except Exception:
            exchange.send_internal_error()
        finally:
            exchange.release_body()
        if not exchange.replied.is_set():
            await _wait(exchange, receive)
        if exchange.parts is not None:
            await _send_parts(exchange, receive, send)
        elif exchange.replied.is_set():
            await exchange.send(send)

    def _admit(self, exchange: AsgiExchange) -> None:
        """Refuses a request by its head. Raises ServeError."""
        state = self.listener_state
        if len(exchange.target) > state.limits.url:
            most = f"at most {state.limits.url} bytes (--limit url)"
            raise ServeError("the URL is too long", status=414, expected=most)
        if state.admit is not None:
            state.admit(exchange.method, exchange.target, exchange.headers, exchange.peer)

    async def _read(self, exchange: AsgiExchange, receive: Receive) -> bool:
        """Receives the body; False if the client has gone. Raises ServeError."""
        state, more = self.listener_state, True
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                return False
            part, more = message.get("body", b""), message.get("more_body", False)
            state.buffered += len(part)
            if not exchange.body:
                exchange.body = part
            else:
                joined = exchange.body if isinstance(exchange.body, bytearray) else bytearray(exchange.body)
                joined += part
                exchange.body = joined  # type: ignore[assignment]  # not modified from here on
            if len(exchange.body) > state.limits.body:
                most = f"at most {state.limits.body} bytes (--limit body)"
                raise ServeError("the body is too large", status=413, expected=most)
            if state.buffered > state.limits.buffered:
                what = "the server's request buffers are full (--limit buffered)"
                raise ServeError(what, status=503, hint="again in a moment")
        exchange.received_at = state.now()
        return True


async def _wait(exchange: AsgiExchange, receive: Receive) -> None:
    """Waits for the response, or until the client disconnects: then the request is abandoned."""
    replied, gone = asyncio.ensure_future(exchange.replied.wait()), asyncio.ensure_future(receive())
    try:
        await asyncio.wait((replied, gone), return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in (replied, gone):
            task.cancel()
        if exchange.on_cancel is not None and exchange.parts is None:
            exchange.on_cancel()


async def _send_parts(exchange: AsgiExchange, receive: Receive, send: Send) -> None:
    """Sends a streamed response, or until the client disconnects: then its producer is told."""
    sent, gone = asyncio.ensure_future(exchange.send(send)), asyncio.ensure_future(receive())
    try:
        await asyncio.wait((sent, gone), return_when=asyncio.FIRST_COMPLETED)
        if sent.done():
            await sent  # raises what the ASGI server raised
    finally:
        for task in (sent, gone):
            task.cancel()
        if exchange.on_cancel is not None:
            exchange.on_cancel()


async def _lifespan(receive: Receive, send: Send) -> None:
    """The server starts and stops by itself."""
    while True:
        kind = (await receive())["type"]
        await send({"type": f"{kind}.complete"})
        if kind == "lifespan.shutdown":
            return
