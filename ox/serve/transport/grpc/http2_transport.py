"""gRPC on ox's own HTTP/2: length-prefixed messages in, messages and a status out."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Mapping
from functools import partial

from ox.errors import ServeError
from ox.serve.protocol.grpc.wire import size_limit
from ox.serve.response_memory import Body
from ox.serve.transport.grpc.framing import PREFIX, encode_message, frame_message, status_trailers
from ox.serve.transport.grpc.rpc import CallLogger, Method, StatusCode, error_status
from ox.serve.transport.http.encoding import WBITS, decompress
from ox.serve.transport.http.response_stream import HIGH_WATER
from ox.serve.transport.http2 import Head, HeaderBlock, HttpStream, Stream, StreamFactory
from ox.serve.transport.http2.connection import Connection

CONTENT_TYPE = re.compile(rb"application/grpc(\+proto)?\s*(;.*)?").fullmatch
TIMEOUT = re.compile(rb"([0-9]{1,8})([HMSmun])").fullmatch
UNIT = {b"H": 3600.0, b"M": 60.0, b"S": 1.0, b"m": 1e-3, b"u": 1e-6, b"n": 1e-9}
ACCEPT_ENCODING = (b"grpc-accept-encoding", b"identity,deflate,gzip")
RESPONSE_HEADERS = [(b":status", b"200"), (b"content-type", b"application/grpc")]
RESPONSE_BLOCKS = {
    b"": HeaderBlock(RESPONSE_HEADERS),
    **{name: HeaderBlock([*RESPONSE_HEADERS, (b"grpc-encoding", name), ACCEPT_ENCODING]) for name in WBITS},
}
OK_TRAILERS = HeaderBlock([(b"grpc-status", b"0")], end_stream=True)
MAX_TIMEOUT_S = 1e7  # seconds
ADMISSION_BYTES = 16 << 10  # bytes of messages that are buffered before access control
MAX_QUEUED_BYTES = 1 << 20  # queued response bytes of a stream above which it reads no more requests


# Access control for long messages, by metadata and client address. Raises ServeError.
Admit = Callable[[Mapping[bytes, bytes], str], None]


class MethodSpec:
    """What all calls with the same head share: method, timeout, encodings."""

    def __init__(self, transport: Http2Transport, method: Method, head: Head) -> None:
        self.transport, self.call, self.max_message = transport, method.call, transport.max_message
        headers = head.headers
        self.timeout: float | None = None
        timeout = headers.get(b"grpc-timeout")
        if timeout is not None:
            match = TIMEOUT(timeout)
            if match is None:
                raise ServeError("the header grpc-timeout is wrong", expected="up to 8 digits and one of HMSmun")
            self.timeout = min(int(match[1]) * UNIT[match[2]], MAX_TIMEOUT_S)
        encoding = headers.get(b"grpc-encoding", b"identity").lower()
        self.encoding = b"" if encoding == b"identity" else encoding
        if self.encoding and self.encoding not in WBITS:
            raise ServeError("unknown grpc-encoding", status=501, expected="gzip, deflate or identity")
        # All clients list the encodings that they support; only clients that compress want compression.
        accepted = headers.get(b"grpc-accept-encoding", b"").replace(b" ", b"").split(b",")
        self.response_encoding = self.encoding if self.encoding in accepted else b""
        self.response_headers = RESPONSE_BLOCKS[self.response_encoding]


class Call(Stream):
    """One call: implements `Rpc`."""

    deadline: float | None = None
    on_cancel: Callable[[], None] | None = None
    on_half_close: Callable[[], None] | None = None
    on_flow: Callable[[bool], None] | None = None
    state: object = None
    timer: asyncio.TimerHandle | None = None
    buffer: bytearray | None = None
    buffered_bytes = 0  # bytes of messages in the listener's count
    headers_sent = finished = admitted = False

    def __init__(self, spec: MethodSpec, connection: Connection, stream_id: int, head: Head, whole: bool) -> None:
        super().__init__(connection, stream_id, head, whole)
        self.spec = spec
        self.metadata: Mapping[bytes, bytes] = head.headers
        if spec.timeout is not None:
            self.deadline = self.received_at + spec.timeout
            self.timer = connection.listener_state.loop.call_later(spec.timeout, self._on_deadline)

    # ---- Rpc

    def finish(self) -> None:
        if self._close():
            self.spec.transport.record_call(self, StatusCode.OK)
            if not self.headers_sent:
                self.send_headers(self.spec.response_headers)
            self.end_stream(OK_TRAILERS)

    def fail(self, code: int, text: str) -> None:
        if self._close():
            self.spec.transport.record_call(self, code)
            fields = status_trailers(code, text)
            if self.headers_sent:
                self.end_stream(HeaderBlock(fields, end_stream=True))
            else:
                self.send_headers(HeaderBlock([*RESPONSE_HEADERS, *fields], end_stream=True))

    def pause(self) -> None:
        pass  # a unary call has had all its messages

    def resume(self) -> None:
        pass

    # ---- Stream

    def cancel(self) -> None:
        callback = self.on_cancel
        self._close()
        if callback is not None:
            callback()

    def on_receive_timeout(self) -> None:
        self._fail_with(ServeError("the request was not received in time", status=408))

    # ---- this class

    def _close(self) -> bool:
        """Ends the call; false if it has ended before."""
        if self.finished:
            return False
        self.finished = True
        self.on_cancel = self.on_half_close = self.on_flow = None
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None
        self._release_buffer()
        return True

    def _release_buffer(self) -> None:
        self.buffer = None
        if self.buffered_bytes:
            self.connection.listener_state.buffered -= self.buffered_bytes
            self.buffered_bytes = 0

    def _on_deadline(self) -> None:
        callback = self.on_cancel
        self.fail(StatusCode.DEADLINE_EXCEEDED, f"the call took longer than {self.spec.timeout:g} s")
        if callback is not None:
            callback()

    def _fail_with(self, error: ServeError) -> None:
        callback = self.on_cancel
        self.fail(*error_status(error))
        if callback is not None:
            callback()

    def _account(self, size: int) -> None:
        """Counts bytes of an unanswered message; raises ServeError beyond the limits."""
        listener_state = self.connection.listener_state
        self.buffered_bytes += size
        listener_state.buffered += size
        if listener_state.buffered > listener_state.limits.buffered:
            raise ServeError("the server's buffers are full (--limit buffered)", status=503, hint="again in a moment")
        admit = self.spec.transport.admit
        if admit is not None and self.buffered_bytes > ADMISSION_BYTES and not self.admitted:
            admit(self.metadata, self.peer)
            self.admitted = True

    def _check_prefix(self, flag: int, length: int) -> None:
        """Checks the prefix of a message before the message is buffered. Raises ServeError."""
        if flag > 1:
            raise ServeError("a message has an unknown flag", status=500, expected="0 or 1", got=str(flag))
        if flag and not self.spec.encoding:
            raise ServeError("a message is compressed, but the header grpc-encoding is missing", status=500)
        if length > self.spec.max_message:
            expected, got = size_limit(self.spec.max_message), f"{length} bytes"
            raise ServeError("the message is too large", status=413, expected=expected, got=got)

    def _decompress(self, flag: int, message: bytes) -> bytes:
        if not flag:
            return message
        try:
            return decompress(message, self.spec.encoding, self.spec.max_message)
        except ServeError as error:
            if error.status == 413:
                raise
            raise ServeError("a message cannot be decompressed", status=500, got=error.one_line()) from None


class UnaryCall(Call):
    """A unary call: one message each way."""

    message: Body | None = None

    def receive_data(self, data: bytes, begin: int, end: int, ended: bool) -> None:
        if ended and self.buffer is None and end - begin >= 5:
            flag, length = PREFIX.unpack_from(data, begin)
            if not flag and length == end - begin - 5 and length <= self.spec.max_message:
                self.spec.call(data[begin + 5 : end], self)  # the fast path
                return
        if self.finished:
            return
        try:
            self._buffer_message(data[begin:end], ended)
        except ServeError as error:
            self._fail_with(error)

    def _buffer_message(self, data: bytes, ended: bool) -> None:
        if self.buffer is None:
            self.buffer = bytearray()
        self.buffer += data
        self._account(len(data))
        if len(self.buffer) >= 5:
            flag, length = PREFIX.unpack_from(self.buffer)
            self._check_prefix(flag, length)
            if len(self.buffer) > 5 + length:
                raise ServeError("a unary call got more than one message", status=501)
            if ended and len(self.buffer) == 5 + length:
                message = bytes(memoryview(self.buffer)[5:])
                self.buffer = None
                self.spec.call(self._decompress(flag, message), self)
                return
        if not ended:
            return
        if self.buffer:
            raise ServeError("the request ended in the middle of a message", status=500)
        raise ServeError("a unary call got no message", status=501)

    def send(self, message: Body) -> None:
        self.message = message

    def finish(self) -> None:
        if self.finished:
            return
        spec, message, self.message = self.spec, self.message, None
        if message is None:
            raise RuntimeError("a unary call was finished without a message")
        if self.timer is None and not self.buffered_bytes:
            self.finished, self.on_cancel = True, None
        else:
            self._close()
        spec.transport.replies[0] += 1
        if spec.transport.log_call is not None:
            spec.transport.log_call(self.head.target, self.metadata, 0, self.received_at, self.peer)
        if not spec.response_encoding:
            if type(message) is bytes:
                self.respond(spec.response_headers, PREFIX.pack(0, len(message)) + message, OK_TRAILERS)
            else:
                self.respond(spec.response_headers, frame_message(message), OK_TRAILERS)
        else:
            self.respond(spec.response_headers, encode_message(message, self.spec.response_encoding), OK_TRAILERS)


class StreamingCall(Call):
    """A streaming call: any number of messages both ways."""

    message_started_at: float | None = None  # start of the incomplete message
    paused = False  # the method has called `pause`
    delivering = False  # inside `_deliver`
    received_any = False  # the method has received a message
    reads_slowly = False  # the client, as far as `on_flow` was told

    def receive_data(self, data: bytes, begin: int, end: int, ended: bool) -> None:
        if self.finished:
            return
        if self.buffer is None:
            self.buffer = bytearray()
        self.buffer += data[begin:end]
        self._deliver()

    def timed_out(self, started_before: float) -> bool:
        """No timeout applies between two messages."""
        return self.message_started_at is not None and self.message_started_at < started_before

    def _deliver(self) -> None:
        """Passes complete messages to the method, unless it has paused."""
        if self.delivering or self.finished:
            return
        self.delivering = True
        try:
            self._deliver_messages()
        except ServeError as error:
            self._fail_with(error)
        finally:
            self.delivering = False

    def _deliver_messages(self) -> None:
        while not (self.paused or self.queued > MAX_QUEUED_BYTES or self.finished):
            buffer = self.buffer
            if buffer is None or len(buffer) < 5:
                break
            flag, length = PREFIX.unpack_from(buffer)
            self._check_prefix(flag, length)
            if len(buffer) < 5 + length:
                break
            message = bytes(memoryview(buffer)[5 : 5 + length])
            del buffer[: 5 + length]
            self.received_any, self.message_started_at = True, None
            self.spec.call(self._decompress(flag, message), self)
        if self.finished:
            return
        rest = len(self.buffer or b"")
        before, self.buffered_bytes = self.buffered_bytes, 0
        self.connection.listener_state.buffered -= before
        self._account(rest)
        if self.paused or self.queued > MAX_QUEUED_BYTES:
            self.wants_data, self.message_started_at = False, None  # the server is the one that waits
        elif not self.remote_closed:
            if rest and self.message_started_at is None:
                self.message_started_at = self.connection.listener_state.now()
            self.update_window()
        elif rest:
            raise ServeError("the request ended in the middle of a message", status=500)
        elif not self.received_any:
            self.finish()
        elif self.on_half_close is not None:
            callback, self.on_half_close = self.on_half_close, None
            callback()

    def on_drain(self) -> None:
        if self.reads_slowly and self.queued <= HIGH_WATER // 4:
            self._set_flow(False)
        if not self.wants_data and self.queued <= MAX_QUEUED_BYTES // 2:
            self._deliver()

    def pause(self) -> None:
        self.paused = True

    def resume(self) -> None:
        self.paused = False
        self._deliver()

    def send(self, message: Body) -> None:
        if self.finished:
            return
        if not self.headers_sent:
            self.headers_sent = True
            self.send_headers(self.spec.response_headers)
        self.send_data(encode_message(message, self.spec.response_encoding))
        if self.queued > HIGH_WATER and not self.reads_slowly:
            self._set_flow(True)

    def _set_flow(self, slow: bool) -> None:
        self.reads_slowly = slow
        if self.on_flow is not None:
            self.on_flow(slow)


class RejectedCall(Stream):
    """A call rejected by its headers."""

    def __init__(
        self,
        transport: Http2Transport,
        error: ServeError,
        connection: Connection,
        stream_id: int,
        head: Head,
        whole: bool,
    ):
        super().__init__(connection, stream_id, head, whole)
        code, text = error_status(error)
        transport.record_call(self, code)
        fields = status_trailers(code, text)
        self.send_headers(HeaderBlock([*RESPONSE_HEADERS, *fields, ACCEPT_ENCODING], end_stream=True))


class Http2Transport:
    """Chooses the stream class of each request: calls of the method table, and HTTP for everything else."""

    def __init__(
        self,
        table: Mapping[bytes, Method],
        max_message: int,
        log_call: CallLogger | None = None,
        admit: Admit | None = None,
    ) -> None:
        self.table, self.max_message, self.log_call, self.admit = table, max_message, log_call, admit
        self.replies = [0] * len(StatusCode)  # responses by status code

    def record_call(self, call: Stream, code: int) -> None:
        """Counts and logs the end of a call."""
        self.replies[code] += 1
        if self.log_call is not None:
            self.log_call(call.head.target, call.head.headers, code, call.received_at, call.peer)

    def route(self, head: Head) -> StreamFactory:
        """The stream factory for a head, see `Http2`."""
        kind = head.headers.get(b"content-type", b"").lower()
        if not kind.startswith(b"application/grpc") or head.method != b"POST":
            return HttpStream
        if not CONTENT_TYPE(kind):
            head.error = ServeError("unknown content-type", status=415, expected="application/grpc or +proto")
            return HttpStream
        try:
            if head.error is not None:
                raise head.error
            method = self.table.get(head.target)
            if method is None:
                path = head.target[:200].decode("latin-1")
                raise ServeError(f"there is no {path}", status=501, hint="gRPC reflection, which lists the methods")
            return partial(StreamingCall if method.streaming else UnaryCall, MethodSpec(self, method, head))
        except ServeError as error:
            return partial(RejectedCall, self, error)
